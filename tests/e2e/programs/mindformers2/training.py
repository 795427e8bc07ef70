"""A training by the real Trainer and AdamW of the mindformers 2.1 wheel, of a small network.

    training.py WHEEL_FOLDER CALLBACKS [STRIKE]

CALLBACKS is JSON, as in a yaml. STRIKE is where one number is wrong in step 8, in the second of two micro-batches:
`activation` in the gradient of an activation, `weight` in that of a weight before it is clipped. It prints one JSON
line a step: its loss, the norm of its gradients, and a hash of the weights after it.
"""

import hashlib
import json
import sys

sys.path.insert(0, sys.argv[1])  # before site-packages, where mindformers 1.9 is

import hyper_parallel_stand_in
import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

hyper_parallel_stand_in.put_in_place()
hyper_parallel_stand_in.mend_cpu()
ms.set_device("CPU")

from mindformers.pynative.callback import TrainerCallback, loss_callback  # noqa: E402
from mindformers.pynative.trainer.trainer import Trainer  # noqa: E402

# It counts the floating-point operations of networks that mindformers knows, and no others.
loss_callback.convert_transformer_config_to_args_for_tflops = lambda config: config
loss_callback.num_floating_point_operations = lambda *_: 0
WIDTH, VOCABULARY, STEPS, STRUCK = 16, 32, 10, 8
STRIKE = sys.argv[3] if len(sys.argv) > 3 else ""
rng = np.random.default_rng(0)


def parameter(*shape):
    return Parameter(Tensor((rng.standard_normal(shape) * 0.1).astype(np.float32)))


class FusedLayerNorm(nn.Cell):
    """Under the name that mindformers 2.1 has for a norm."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = Parameter(ops.ones(WIDTH)), Parameter(ops.zeros(WIDTH))

    def construct(self, x):
        x = x - x.mean(-1, keep_dims=True)
        return x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-5) * self.weight + self.bias


class Linear(nn.Cell):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.matmul = parameter(outputs, inputs), mint.matmul

    def construct(self, x):
        return self.matmul(x, self.weight.T)


class Struck:
    """Makes one number of a gradient wrong, once."""

    calls = 0

    def __init__(self, wrong):
        self.wrong = wrong

    def __call__(self, gradient):
        self.calls += 1
        if self.calls != 2 * STRUCK:
            return gradient
        array = gradient.asnumpy().copy()
        array.flat[5] = self.wrong
        return Tensor(array)


class Layer(nn.Cell):
    def __init__(self):
        super().__init__()
        struck = Struck(1e20)
        self.hook = ops.HookBackward(lambda gradients: struck(gradients[0])) if STRIKE == "activation" else lambda x: x
        self.norm, self.up, self.down = FusedLayerNorm(), Linear(WIDTH, 2 * WIDTH), Linear(2 * WIDTH, WIDTH)

    def construct(self, x):
        return x + self.hook(self.down(ops.gelu(self.up(self.norm(x)))))


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = parameter(VOCABULARY, WIDTH)
        self.layers, self.final_norm = nn.CellList([Layer()]), FusedLayerNorm()
        self.head = Linear(WIDTH, VOCABULARY)

    def construct(self, tokens, labels):
        x = ops.gather(self.table, tokens, 0)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final_norm(x))

    def to_empty(self):
        pass

    def init_states(self):
        pass

    def get_gpt_transformer_config(self):
        return object()


def batches():
    data = np.random.default_rng(1)
    for _ in range(1000):
        tokens = data.integers(0, VOCABULARY, (4, 9)).astype(np.int32)
        yield tokens[:, :-1], tokens[:, :-1] * 5 % VOCABULARY


class Printing(TrainerCallback):
    def on_step_end(self, args, state, *, model, loss, grad_norm, **more):
        weights = b"".join(weight.asnumpy().tobytes() for weight in model[0].trainable_params())
        digest = hashlib.sha256(weights).hexdigest()[:12]
        told = {"step": state.global_step, "loss": float(loss.asnumpy()), "norm": float(grad_norm.asnumpy())}
        print(json.dumps(told | {"weights": digest}), flush=True)


dataset = ms.dataset.GeneratorDataset(batches, ["tokens", "labels"], shuffle=False, num_parallel_workers=1)
trainer = Trainer(
    {
        "training": {"steps": STEPS, "local_batch_size": 4, "global_batch_size": 8, "max_norm": 1.0},
        "optimizer": {"type": "AdamW", "weight_decay": 0.0},
        "lr_scheduler": {"type": "ConstantWarmUpLR", "learning_rate": 1e-2, "warmup_steps": 0},
        "train_dataset": {"dataloader": {"type": "given"}},
        "model": {"model_type": "given", "architectures": "given"},
        "callbacks": json.loads(sys.argv[2]),
        "checkpoint": {"enable_save": False},
    },
    model=Model(),
    train_dataset=dataset,
    callbacks=[Printing()],
    compute_loss_func=lambda outputs, labels: nn.CrossEntropyLoss()(
        outputs.reshape(-1, VOCABULARY), labels.reshape(-1)
    ),
)
if STRIKE == "weight":
    trainer.model[0].layers[0].down.weight.register_hook(Struck(1e6))
trainer.train()
