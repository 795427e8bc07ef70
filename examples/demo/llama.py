"""A real training for experiments: mindformers' `LlamaForCausalLM` on text that comes with Python."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from asd.config import Config
from asd.errors import AnomalyDetected
from asd.event import Event
from asd.injection import Change, Fault
from asd.judge.delivery import Sink
from asd.operators.drill.inject import FaultInjector
from asd.operators.monitor.step_monitor import StepMonitor
from asd.verdict import Level

Tell = Callable[[int, float], None]


@dataclass(frozen=True)
class Workload:
    """Size of the model and of a batch.

    Attributes:
        hidden: Width of the residual stream.
        layers: Number of decoder blocks.
        heads: Attention heads.
        intermediate: Width inside the feed-forward part.
        sequence: Tokens per sequence.
        batch: Sequences per step.
        learning_rate: Learning rate of AdamWeightDecay.
        seed: Seed of the weights and of the order of the text.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    intermediate: int = 128
    sequence: int = 64
    batch: int = 4
    learning_rate: float = 3e-3
    seed: int = 1


SMALL = Workload()
LARGE = Workload(hidden=512, layers=4, heads=8, intermediate=1376, sequence=256, learning_rate=3e-4)

_VOCABULARY = 512


def build(workload: Workload) -> tuple[nn.Cell, nn.Cell]:
    """Returns the network, whose output is its loss, and its optimizer; weights are the same for the same seed."""
    logging.disable(logging.WARNING)  # mindformers logs which of its models can't be imported
    try:
        from mindformers import LlamaConfig, LlamaForCausalLM
    finally:
        logging.disable(logging.NOTSET)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("mindformers"):
            logging.getLogger(name).setLevel(logging.ERROR)  # it logs every choice
    ms.set_seed(workload.seed)
    np.random.seed(workload.seed)  # noqa: NPY002 - mindformers draws its weights from the global generator
    config = LlamaConfig(
        batch_size=workload.batch,
        seq_length=workload.sequence,
        vocab_size=_VOCABULARY,
        hidden_size=workload.hidden,
        num_layers=workload.layers,
        num_heads=workload.heads,
        intermediate_size=workload.intermediate,
        multiple_of=16,
        max_position_embedding=workload.sequence,
        pad_token_id=_VOCABULARY - 1,
        compute_dtype="float32",
        param_init_type="float32",
        layernorm_compute_type="float32",
        softmax_compute_type="float32",
        rotary_dtype="float32",
        use_flash_attention=False,
        fused_rms_norm=False,
        use_rope_slice=True,
    )
    config.disable_lazy_inline = True  # in data parallel mindformers asks for it, and the CPU's compiler lacks it
    net = LlamaForCausalLM(config=config)
    net.set_train()
    return net, nn.AdamWeightDecay(net.trainable_params(), learning_rate=workload.learning_rate)


def batches(workload: Workload, first: int = 0) -> Iterator[np.ndarray]:
    """Yields batches of tokens, int32 of shape (batch, sequence + 1), without end; skips the `first` batches."""
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
    """Returns the batches as a dataset of `steps` steps for `Model.train`."""
    source = [batch for batch, _ in zip(batches(workload, first), range(steps), strict=False)]
    return ms.dataset.GeneratorDataset(source, ["input_ids"], shuffle=False)


class _Recorder(ms.train.Callback):
    """Recorder of the loss of every step, and once of a digest of all weights and optimizer states."""

    def __init__(self, net: nn.Cell, optimizer: nn.Cell, first: int, digest_after: int, tell: Tell | None) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.digest_then = ""
        self._net, self._optimizer = net, optimizer
        self._first, self._digest_after, self._tell = first, digest_after, tell

    def on_train_step_end(self, run_context: Any) -> None:
        """Reads the loss, which waits for the end of the step."""
        outputs = run_context.original_args().net_outputs
        loss = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        self.losses.append(float(Tensor(loss).asnumpy().reshape(-1)[0]))
        step = self._first + len(self.losses)
        if step == self._digest_after:
            self.digest_then = digest(self._net, self._optimizer)
        if self._tell is not None:
            self._tell(step, self.losses[-1])


@dataclass(frozen=True)
class Run:
    """Result of a training.

    Attributes:
        losses: One loss per step made.
        digest: SHA-256 over all weights and optimizer states at the end.
        digest_then: The same after the step `digest_after`.
        anomaly: The event that ended it, or None.
        history: Per checkpoint `(step, value, limit, level)`, as in `Monitor`.
        changes: Changes that the fault made.
        where: Place that the fault changed.
    """

    losses: list[float]
    digest: str
    digest_then: str
    anomaly: Event | None
    history: dict[str, list[tuple[int, float, float, Level]]]
    changes: list[Change]
    where: str


def train(
    workload: Workload,
    steps: int,
    *,
    config: Config | None = None,
    sinks: Sequence[Sink] = (),
    fault: Fault | None = None,
    folder: Path | None = None,
    save_every: int = 10,
    resume_from: Path | None = None,
    digest_after: int = 0,
    tell: Tell | None = None,
) -> Run:
    """Trains with `Model.train`, as a user would.

    Args:
        workload: Model and data.
        steps: Number of the last step; a resumed training makes only the missing ones.
        config: Settings of detection; None or `enable=0` trains without any check.
        sinks: Receivers of events.
        fault: Fault to inject; needs a `config` that detects.
        folder: Folder for checkpoints; None for no checkpoints.
        save_every: Steps between two checkpoints.
        resume_from: Checkpoint file to resume from.
        digest_after: Step after which `Run.digest_then` is taken.
        tell: Called after each step with its number and its loss.
    """
    net, optimizer = build(workload)
    first = 0
    if resume_from is not None:
        saved = ms.load_checkpoint(str(resume_from))
        ms.load_param_into_net(net, saved)
        ms.load_param_into_net(optimizer, saved)
        first = int(saved["global_step"].asnumpy()[0])
    recorder = _Recorder(net, optimizer, first, digest_after, tell)
    callbacks: list[ms.train.Callback] = [recorder]
    monitor = StepMonitor(config or Config(), sinks=sinks, history=steps, resume_from=resume_from)
    callbacks.append(monitor)
    injector = FaultInjector(fault, first + 1) if fault is not None else None
    if injector is not None:
        callbacks.append(injector)
    if folder is not None:
        settings = ms.train.CheckpointConfig(save_checkpoint_steps=save_every, keep_checkpoint_max=5)
        callbacks.append(ms.train.ModelCheckpoint("llama", str(folder), settings))
    anomaly = None
    try:
        ms.train.Model(net, optimizer=optimizer).train(
            1, dataset(workload, steps - first, first), callbacks=callbacks, dataset_sink_mode=False
        )
    except AnomalyDetected as error:
        anomaly = error.event
    history = monitor.monitor.history if monitor.monitor is not None else {}
    return Run(
        recorder.losses,
        digest(net, optimizer),
        recorder.digest_then,
        anomaly,
        {name: list(values) for name, values in history.items()},
        injector.changes if injector is not None else [],
        injector.where if injector is not None else "",
    )


def check(fault: Fault, config: Config) -> None:
    """Raises `ConfigError` if the small network lacks the place of a fault, before any training was made in vain."""
    net, optimizer = build(SMALL)
    StepMonitor(config, sinks=[]).attach(net, optimizer)
    FaultInjector(fault).attach(net)


def use_mode(mode: str) -> None:
    """Sets the mode of MindSpore: `graph` or `pynative`."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")


def digest(net: nn.Cell, optimizer: nn.Cell) -> str:
    """Returns the SHA-256 over every weight and every state of the optimizer."""
    parameters = {parameter.name: parameter for cell in (net, optimizer) for parameter in cell.get_parameters()}
    sha = hashlib.sha256()
    for name in sorted(parameters):
        sha.update(name.encode() + parameters[name].asnumpy().tobytes())
    return sha.hexdigest()
