"""Kinds of checked tensors, with the margins of healthy values of each."""

from typing import Final, NamedTuple

from asd.errors import ConfigError
from asd.rules.reading import AVERAGED, GRADIENT, WEIGHT_GRADIENT


class Kind(NamedTuple):
    """Kind of tensors and its margins, in bits: factors of two above or below earlier values of a site."""

    symbol: str  # `B`, `W` or `A`
    name: str  # name in reasons and names of sites
    envelope: float  # distance above the ceiling of growth that is too large; a fit may widen it, never narrow it
    first: float  # the same margin until enough is known for a fit
    drop: float  # distance below the recent smallest value that is a warning
    absolute: bool  # whether the published thresholds, made for gradients of norms, hold too


KINDS: Final[dict[str, Kind]] = {
    kind.symbol: kind
    for kind in (
        Kind(GRADIENT, "gradient", 2.5, 4.0, 1.26, absolute=True),
        Kind(WEIGHT_GRADIENT, "weight gradient", 2.8, 4.0, 1.63, absolute=False),
        Kind(AVERAGED, "averaged gradient", 2.8, 4.0, 1.63, absolute=False),
    )
}
"""`B`: gradients of activations. `W`: gradients of parameters. `A`: their sums over the ranks, with the margins of `W`.

Margins and drops are a little above what 1.03 million checks of clean trainings of small transformers reached.
"""


def kind_of(symbol: str) -> Kind:
    """Returns the kind `symbol`; raises ConfigError if it is unknown."""
    if symbol not in KINDS:
        valid = "one of " + ", ".join(f"{each.symbol} ({each.name})" for each in KINDS.values())
        raise ConfigError("kind", symbol, valid)
    return KINDS[symbol]
