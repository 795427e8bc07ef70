"""The vendor's combined scheme in a training: gradients of parameters are sampled before the ranks are summed up.

They are judged by the combined rule. Strikes, their window and the cool-downs are decided by `CombinedScheme`. Every
ten steps the ranks tell one another, and a strike-out of one switches the checksum on for all of them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.combined_config import CombinedConfig
from asd.combined_scheme import Action, CombinedScheme, Message, Poll, Strike
from asd.operators.checksum import Checksum
from asd.operators.exchange import Exchange
from asd.operators.slots import OperatorTable, Site, table
from asd.operators.tap import hidden, kernel_function, statistics_by_operators
from asd.rules.sampled_gradient import SampledGradient

__all__ = ["POLL_STEPS", "GradientSamples"]

_LOG = logging.getLogger("asd.combined")
POLL_STEPS = 10
"""Steps from one exchange with the other ranks to the next."""


class GradientSamples:
    """The sampled gradients of one training.

    Args:
        config: The settings.
        checksum: What is switched on by a strike-out.
        clock: Seconds since the epoch.

    Attributes:
        sites: The checkpoints, called `gradient.` and the name of the parameter.
        scheme: The decisions.
    """

    def __init__(self, config: CombinedConfig, checksum: Checksum | None, clock: Callable[[], float]) -> None:
        self.scheme = CombinedScheme(config)
        self.sites: list[Site] = []
        self._checksum, self._clock = checksum, clock
        self._failed = False

    def install(self, net: nn.Cell, optimizer: nn.Cell) -> list[Site]:
        """Looks at the gradients where they are still this rank's own: before a reducer, or else the optimizer."""
        reducer = next((cell for _, cell in net.cells_and_names() if isinstance(cell, nn.DistributedGradReducer)), None)
        holder = reducer if reducer is not None else optimizer
        present = getattr(holder, "asd_samples", None)
        if present is not None:
            self.sites = present.sites
            return self.sites
        matrices = [(i, parameter) for i, parameter in enumerate(optimizer.parameters) if parameter.ndim > 1]
        chosen = matrices[:: self.scheme.config.grad_sample_interval]
        self.sites = [table().new_site(f"gradient.{parameter.name}") for _, parameter in chosen]
        for site in self.sites:
            site.claimed = True
        _attach(holder, _Look(self.sites, [i for i, _ in chosen]))
        return self.sites

    def make_rule(self) -> SampledGradient:
        """The rule of one of the sites."""
        config = self.scheme.config
        return SampledGradient(config.upper_thresh1, config.upper_thresh2, counts=self._counts)

    def _counts(self) -> bool:
        return self.scheme.strike(self._clock()) is Strike.RECORDED

    def after_step(self, step: int, exchange: Exchange, *, failed: bool) -> Poll:
        """Asks the ranks when it is time; a call of all ranks.

        Args:
            step: The step that was made.
            exchange: The ranks.
            failed: Whether a product of this step did not fit its checksum.

        Raises:
            RuntimeError: A rank did not answer.
        """
        self._failed = self._failed or failed
        if not self.scheme.config.with_checksum or step % POLL_STEPS:
            return Poll(Action.NONE)
        own = self.scheme.message(self._clock(), failed=self._failed)
        poll = self.scheme.poll([Message(*json.loads(told)) for told in exchange.gather(json.dumps(own).encode())])
        if poll.action is Action.START:
            self._failed = False
            _LOG.warning("Feature value detection strikes out on rank %s, CheckSum will be enabled globally.",
                         ", ".join(map(str, poll.ranks)))  # fmt: skip
        elif poll.action is Action.STOP:
            _LOG.warning("Global CheckSum result is %d", bool(poll.ranks))
            if exchange.rank in poll.ranks:
                _LOG.error("CheckSum detects MatMul error on rank %d", exchange.rank)
        if self._checksum is not None and poll.action is not Action.NONE:
            self._checksum.always = poll.action is Action.START
        return poll


class _Look(nn.Cell):
    """The gradients as they are, after those at `places` were looked at."""

    def __init__(self, sites: list[Site], places: list[int]) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self.sites, self.places = sites, tuple(places)
        self.slot_numbers = tuple(Tensor([site.slot], ms.int32) for site in sites)
        self.look = _by_operators(slots) if isinstance(slots, OperatorTable) else kernel_function("asd_observe")

    def construct(self, gradients):
        seen = ()
        for i in range(len(self.places)):
            seen = seen + (self.look(gradients[self.places[i]], self.slot_numbers[i]),)  # type: ignore[assignment]  # noqa: RUF005
        return F.depend(gradients, seen)


def _by_operators(slots: OperatorTable) -> Callable[..., Tensor]:
    get = hidden(slots.max_abs, slots.l2, slots.non_finite, slots.calls)
    keep_worst, add, one = P.ScatterMax(), P.ScatterAdd(), Tensor([1.0], ms.float32)

    def look(gradient, slot):
        max_abs, l2, non_finite, calls = get()
        largest, norm, bad = statistics_by_operators(gradient)
        done = F.depend(one, keep_worst(max_abs, slot, largest))
        done = F.depend(done, keep_worst(l2, slot, norm))
        done = F.depend(done, add(non_finite, slot, bad))
        return F.depend(done, add(calls, slot, one))

    return look


def _attach(holder: nn.Cell, look: _Look) -> None:
    base = type(holder)

    class Sampled(base):  # type: ignore[misc, valid-type]
        def construct(self, gradients, *args):
            return super().construct(self.asd_samples(gradients), *args)

    Sampled.__name__, Sampled.__qualname__, Sampled.__module__ = base.__name__, base.__qualname__, base.__module__
    holder.asd_samples = look
    holder.__class__ = Sampled
