"""The kinds of checked tensors, and what each has shown to be healthy."""

from __future__ import annotations

from typing import Final, NamedTuple

from asd.errors import ConfigError
from asd.rules.readings.reading import AVERAGED, GRADIENT, OUTPUT, WEIGHT_GRADIENT

__all__ = ["KINDS", "Kind", "kind_of"]


class Kind(NamedTuple):
    """One kind of tensors and its margins, in bits: factors of two above or below what a checkpoint has shown.

    Attributes:
        symbol: `Y`, `B`, `W` or `A`.
        name: In reasons and names of checkpoints.
        envelope: Per feature (`max_abs`, `l2`, `mean_abs`) the distance above what growth explains that is too much; a
            fit may widen it, never narrow it.
        first: The same as long as too little is known for a fit, where it is larger.
        deviations: Distance of the maximum above its mean that is an error, in deviations; None where clean runs go
            too far for that.
        drop: Distance of `l2` and `mean_abs` below the recent smallest that is a warning.
        cusum: Sum of deviations above 3 that is a warning; None where clean runs go too far for that.
        absolute: Whether the published thresholds, which were made for gradients of norms, hold too.
        gradient: Whether one unusual batch can send it far up, so that what is above the margins has to last.
    """

    symbol: str
    name: str
    envelope: tuple[float, float, float]
    first: float
    deviations: float | None
    drop: tuple[float, float]
    cusum: float | None
    absolute: bool
    gradient: bool


_OF_WEIGHTS = (2.4, 2.8, 2.8), 4.0, 13.3, (1.63, 1.52), 20.0

KINDS: Final[dict[str, Kind]] = {
    kind.symbol: kind
    for kind in (
        Kind(OUTPUT, "forward", (1.7, 4.0, 1.7), 1.7, None, (0.68, 0.71), None, absolute=False, gradient=False),
        Kind(GRADIENT, "gradient", (2.5, 2.5, 2.5), 4.0, 12.2, (1.26, 1.27), 60.0, absolute=True, gradient=True),
        Kind(WEIGHT_GRADIENT, "weight gradient", *_OF_WEIGHTS, absolute=False, gradient=True),
        Kind(AVERAGED, "averaged gradient", *_OF_WEIGHTS, absolute=False, gradient=True),
    )
}
"""`Y`: outputs of the forward pass. `B`: gradients of activations. `W`: gradients of parameters. `A`: their mean over
the ranks, with the margins of `W`.

Margins of gradients, drops and sums of deviations are a little above what 1.03 million checks of clean trainings of
small transformers came to; that of outputs is above the 1.55 bits by which a batch of noise raised those of a first
layer. The L2 norm of an output grows with the root of its size, which longer sequences and larger batches change; 4
bits are 256 times as many elements. Maximum and mean hardly depend on that.
"""


def kind_of(symbol: str) -> Kind:
    """The kind `symbol`, or ConfigError."""
    if symbol not in KINDS:
        valid = "one of " + ", ".join(f"{each.symbol} ({each.name})" for each in KINDS.values())
        raise ConfigError("kind", symbol, valid)
    return KINDS[symbol]
