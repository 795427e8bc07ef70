"""A dump of a sound Llama: the pre-check finds no error in it."""

import csv

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from asd.cli import main
from asd.operators import PrecisionDebugger

WIDTH, HEADS, LENGTH = 32, 2, 8


class RMSNorm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = Parameter(ops.ones(WIDTH, ms.float32), name="weight")

    def construct(self, x):
        return x * ops.rsqrt(ops.mean(x * x, -1, True) + 1e-6) * self.weight


class Attention(nn.Cell):
    """With rotated queries and keys, and a mask that is added."""

    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Dense(WIDTH, WIDTH, has_bias=False) for _ in range(4))
        self.mask = Tensor(np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1))
        self.add = ops.Add()
        angles = np.outer(np.arange(LENGTH), 10000.0 ** -(np.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS)))
        self.cos, self.sin = (Tensor(np.concatenate((f(angles),) * 2, -1), ms.float32) for f in (np.cos, np.sin))

    def rotated(self, x):
        first, second = ops.split(x, WIDTH // HEADS // 2, -1)
        return x * self.cos + ops.concat((-second, first), -1) * self.sin

    def construct(self, x):
        shape = (2, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (layer(x).reshape(shape).transpose((0, 2, 1, 3)) for layer in (self.wq, self.wk, self.wv))
        scores = ops.matmul(self.rotated(q), self.rotated(k).transpose((0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5
        mixed = ops.matmul(ops.softmax(self.add(scores, self.mask)), v)
        return self.wo(mixed.transpose((0, 2, 1, 3)).reshape((2, LENGTH, WIDTH)))


class Llama(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, WIDTH)
        self.norm1, self.norm2, self.attention = RMSNorm(), RMSNorm(), Attention()
        self.w1, self.w3, self.w2 = nn.Dense(WIDTH, 64), nn.Dense(WIDTH, 64), nn.Dense(64, WIDTH)
        self.head = nn.Dense(WIDTH, 16, has_bias=False)

    def construct(self, tokens):
        # Large numbers, as residual streams have them: an error of one unit in the last place is beyond 0.0001.
        h = self.embedding(tokens) * 3e4
        h = h + self.attention(self.norm1(h)) * 100.0
        x = self.norm2(h)
        h = h + self.w2(ops.silu(self.w1(x)) * self.w3(x))
        return (self.head(h * 10.0) * 0.001).sum()


def checked(path, folder, *options):
    assert main(["run_ut", "-api_info", str(path), "-o", str(folder), *options]) == 0
    (file,) = folder.glob("accuracy_checking_result_*.csv")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8-sig").splitlines()))
    return [row["API Name"] for row in rows if "error" in (row["Forward Test Success"], row["Backward Test Success"])]


def test_a_sound_llama_has_no_error_and_the_literal_rule_blames_its_large_numbers(tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(3)
    net = Llama()
    step = ms.value_and_grad(net, None, net.trainable_params())
    debugger = PrecisionDebugger(task="tensor", level="mix", dump_path=tmp_path / "dump")
    debugger.start(net)
    step(Tensor(np.arange(2 * LENGTH).reshape(2, LENGTH) % 16, ms.int32))[0].asnumpy()
    debugger.stop()
    path = tmp_path / "dump" / "step0" / "rank0" / "dump.json"
    assert checked(path, tmp_path / "seed") == []
    assert "Primitive.add.Add.0" in checked(path, tmp_path / "literal", "--rule", "literal")
