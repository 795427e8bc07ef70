"""Small networks for the dry run: blocks with norms and residuals, a table behind `GatherASD`."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P  # noqa: N812

VOCABULARY, LENGTH, WIDTH, BATCH = 64, 16, 64, 1024


class Table(nn.Cell):
    """An embedding whose `Gather` is divided by rows of the batch."""

    def __init__(self, gather, layout):
        super().__init__()
        self.embedding_table = Parameter(Tensor(np.ones((VOCABULARY, WIDTH)), ms.float32), name="embedding_table")
        self.gather = gather
        if layout.parallel == "semi_auto_parallel":
            self.gather.shard(((1, 1), (layout.data,)))

    def construct(self, ids):
        return self.gather(self.embedding_table, ids, 0)


class TableEmbedding(Table):
    """By its name `install` knows that it is one."""


class Linear(nn.Cell):
    def __init__(self, rows, columns, operands, layout):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((rows, columns)) / rows, ms.float32), name="weight")
        self.matmul = P.MatMul()
        if layout.parallel == "semi_auto_parallel" or layout.search == "sharding_propagation":
            self.matmul.shard(operands)

    def construct(self, x):
        return self.matmul(x, ops.cast(self.weight, x.dtype))


class Block(nn.Cell):
    """Norm, a product divided by columns, one divided by rows, and the residual; or the norm behind it."""

    def __init__(self, layout, norm_last):
        super().__init__()
        self.norm_last = norm_last
        data, tensor = layout.data, layout.tensor
        self.norm = nn.LayerNorm((WIDTH,))
        self.up = Linear(WIDTH, 2 * WIDTH, ((data, 1), (1, tensor)), layout)
        self.down = Linear(2 * WIDTH, WIDTH, ((data, tensor), (tensor, 1)), layout)
        self.relu, self.add = P.ReLU(), P.Add()
        if layout.parallel == "semi_auto_parallel":
            self.norm.layer_norm.shard(((data, 1), (1,), (1,)))
            self.relu.shard(((data, tensor),))
            self.add.shard(((data, 1), (data, 1)))

    def construct(self, x):
        if self.norm_last:
            return self.norm(self.add(x, self.down(self.relu(self.up(x)))))
        return self.add(x, self.down(self.relu(self.up(self.norm(x)))))


class Blocks(nn.Cell):
    def __init__(self, layout, gather, *, norm_last=False):
        super().__init__()
        self.type = getattr(ms, layout.type)
        self.embedding = TableEmbedding(gather, layout)
        self.layers = nn.CellList([Block(layout, norm_last) for _ in range(2)])
        self.head = Linear(WIDTH, 1, ((layout.data, 1), (1, 1)), layout)
        # Of a linear loss all micro-batches have the same gradient, and the compiler sums it over the ranks once.
        self.square, self.mean = P.Square(), P.ReduceMean()
        if layout.parallel == "semi_auto_parallel":
            self.square.shard(((layout.data, 1),))
            self.mean.shard(((layout.data, 1),))
        if layout.stages > 1:
            self.embedding.pipeline_stage = self.layers[0].pipeline_stage = 0
            self.layers[1].pipeline_stage = self.head.pipeline_stage = layout.stages - 1
        if layout.recompute:
            for layer in self.layers:
                layer.recompute()

    def construct(self, ids):
        x = ops.cast(self.embedding(ids), self.type)
        for layer in self.layers:
            x = layer(x)
        return ops.cast(self.mean(self.square(self.head(x)), (0, 1)), ms.float32)


def blocks(layout):
    """Found by `install`."""
    return Blocks(layout, P.Gather()), Tensor(np.zeros(BATCH), ms.int32)


def norm_last(layout):
    """With the norm behind the residual, as in BERT: what a stage of a pipeline sends on is checked."""
    return Blocks(layout, P.Gather(), norm_last=True), Tensor(np.zeros(BATCH), ms.int32)


def gather(layout):
    """The same with the check operator of the document, divided as the bare one."""
    from asd.operators import GatherASD

    return Blocks(layout, GatherASD()), Tensor(np.zeros(BATCH), ms.int32)


class Convolutions(nn.Cell):
    """Convolutions with group norms and residuals, as in a ResNet; divided by the batch."""

    def __init__(self, layout):
        super().__init__()
        self.type = getattr(ms, layout.type)
        self.first = nn.Conv2d(3, 16, 3, has_bias=False)
        self.layers = nn.CellList([nn.Conv2d(16, 16, 3, has_bias=False) for _ in range(2)])
        self.norms = nn.CellList([nn.GroupNorm(4, 16) for _ in range(2)])
        self.head = nn.Dense(16, 10)
        self.relu, self.square, self.mean = P.ReLU(), P.Square(), P.ReduceMean()

    def construct(self, pictures):
        x = ops.cast(self.first(pictures), self.type)
        for i in range(2):
            y = self.layers[i](ops.cast(x, ms.float32))
            x = x + ops.cast(self.relu(self.norms[i](y)), self.type)
        return self.mean(self.square(self.head(self.mean(ops.cast(x, ms.float32), (2, 3)))), (0, 1))


def convolutions(layout):
    """What has no token and no matrix product but the last."""
    return Convolutions(layout), Tensor(np.ones((16, 3, 16, 16)), ms.float32)
