"""A real training to try things on: mindformers' `LlamaForCausalLM` on text that comes with Python.

No download: the text is that of `pydoc_data.topics`, read as bytes. The configuration needs no patch on a CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

__all__ = ["LARGE", "SMALL", "Workload", "batches", "build"]


@dataclass(frozen=True)
class Workload:
    """The size of the model and of a batch.

    Attributes:
        hidden: Width of the residual stream.
        layers: Number of decoder blocks.
        heads: Attention heads.
        intermediate: Width inside the feed-forward part.
        sequence: Tokens per sequence.
        batch: Sequences per step.
        learning_rate: Of AdamWeightDecay.
        seed: For weights and the order of the text.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    intermediate: int = 128
    sequence: int = 64
    batch: int = 4
    learning_rate: float = 3e-3
    seed: int = 1

    def with_(self, **changes: Any) -> Workload:
        """The same with some numbers changed."""
        return replace(self, **changes)


SMALL = Workload()
LARGE = Workload(hidden=512, layers=4, heads=8, intermediate=1376, sequence=256, learning_rate=3e-4)

_VOCABULARY = 512


def build(workload: Workload) -> tuple[nn.Cell, nn.Cell]:
    """The network, whose output is its loss, and its optimizer; the same weights for the same seed."""
    logging.getLogger("mindformers").setLevel(logging.ERROR)
    from mindformers import LlamaConfig, LlamaForCausalLM

    ms.set_seed(workload.seed)
    np.random.seed(workload.seed)  # noqa: NPY002 - mindformers draws its weights from the global generator
    config = LlamaConfig(
        batch_size=workload.batch, seq_length=workload.sequence, vocab_size=_VOCABULARY, hidden_size=workload.hidden,
        num_layers=workload.layers, num_heads=workload.heads, intermediate_size=workload.intermediate, multiple_of=16,
        max_position_embedding=workload.sequence, pad_token_id=_VOCABULARY - 1,
        compute_dtype="float32", param_init_type="float32", layernorm_compute_type="float32",
        softmax_compute_type="float32", rotary_dtype="float32",
        use_flash_attention=False, fused_rms_norm=False, use_rope_slice=True,
    )  # fmt: skip
    net = LlamaForCausalLM(config)
    net.set_train()
    return net, nn.AdamWeightDecay(net.trainable_params(), learning_rate=workload.learning_rate)


def batches(workload: Workload, first: int = 0) -> Iterator[np.ndarray]:
    """Batches of tokens, int32 of shape (batch, sequence + 1), without end; `first` skips as many."""
    from pydoc_data import topics

    text = np.frombuffer("".join(topics.topics.values()).encode(), np.uint8).astype(np.int32)
    rows = text[: len(text) // (workload.sequence + 1) * (workload.sequence + 1)].reshape(-1, workload.sequence + 1)
    order = np.random.default_rng(workload.seed).permutation(len(rows))
    step = first
    while True:
        chosen = np.arange(step * workload.batch, (step + 1) * workload.batch) % len(rows)
        yield rows[order[chosen]]
        step += 1


def dataset(workload: Workload, steps: int, first: int = 0) -> Any:
    """The batches as a dataset of `steps` steps for `Model.train`."""
    source = [batch for batch, _ in zip(batches(workload, first), range(steps), strict=False)]
    return ms.dataset.GeneratorDataset(source, ["input_ids"], shuffle=False)


class LossRecorder(ms.train.Callback):  # type: ignore[misc]
    """Keeps the loss of every step.

    Args:
        tell: Called after each step with the number of losses and the last loss, for a progress bar.
    """

    def __init__(self, tell: Callable[[int, float], None] | None = None) -> None:
        super().__init__()
        self.losses: list[float] = []
        self._tell = tell

    def on_train_step_end(self, run_context: Any) -> None:
        """Reads the loss, which waits for the step."""
        outputs = run_context.original_args().net_outputs
        loss = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        self.losses.append(float(Tensor(loss).asnumpy().reshape(-1)[0]))
        if self._tell is not None:
            self._tell(len(self.losses), self.losses[-1])
