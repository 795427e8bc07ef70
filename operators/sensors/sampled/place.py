"""Layer whose results are recomputed while it is due; a compiled graph contains nothing of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn

from asd.operators.gate.site import Site
from asd.operators.gate.slots import table
from asd.operators.private.boundary import own_work
from asd.operators.private.cells import is_hooked, without_gradients
from asd.operators.private.class_swap import put_on, take_off
from asd.operators.sensors.sampled.product import CheckedProduct, Form
from asd.operators.sensors.sampled.score import Differs, ProductScore
from asd.rules.reading import CHECKSUM, TWICE

MOST_CALLS = 16  # most calls of one layer that are checked in a step: each leaves numbers that must be read


class Place:
    """Check of one layer.

    Between its calls it has the attributes that it had. A graph knows nothing of `__call__`, so the code that is
    compiled is the layer's own.

    Args:
        name: Of the layer.
        cell: The layer; it gets a class of its own.
        products: The form of each attribute that is a product.
        repeats: Whether its whole call is made twice.
        problem: Called with what went wrong.
    """

    def __init__(
        self, name: str, cell: nn.Cell, products: Mapping[str, Form], *, repeats: bool, problem: Callable[[str], Any]
    ) -> None:
        self.calls = 0  # how many of its next calls are checked
        self.is_called = False  # whether Python ever called it
        self.sites = list[Site]()  # where the scores go
        self._problem = problem
        self._score, self._differs = ProductScore(), Differs()
        self._products = {}
        for each, form in products.items():
            of_product = f"{name}.{each}.checksum" if len(products) > 1 else f"{name}.checksum"
            self._products[each] = form, [self._site(of_product + part, CHECKSUM) for part in ("", "_dx", "_dw")]
        self._twice = self._site(f"{name}.twice", TWICE) if repeats else None
        self._layer = put_on(cell, _layer(self, type(cell)))

    def _site(self, name: str, kind: str) -> Site:
        site = table().new_site(name, kind)
        site.claimed = True
        self.sites.append(site)
        return site

    def remove(self, cell: nn.Cell) -> None:
        """Gives the layer its class back; the check itself must not keep the layer."""
        self.calls = 0
        take_off(cell, self._layer)

    def call(self, cell: nn.Cell, call: Callable[[], Any]) -> Any:
        """Calls the layer, and checks its result."""
        if ms.get_context("mode") == ms.GRAPH_MODE:
            return call()
        self.calls -= 1
        with self._checking(cell):
            output = call()
        # Hooks would see the second call too, and a cell on top would begin another graph of gradients.
        if self._twice is not None and not (is_hooked(cell) or cell.requires_grad):
            self._note(self._twice, lambda: self._differs(_tensors(output), _tensors(call())))
        return output

    @contextmanager
    def _checking(self, cell: nn.Cell) -> Iterator[None]:
        attributes = vars(cell)
        before = {name: attributes[name] for name in self._products}
        for name, (form, sites) in self._products.items():
            attributes[name] = CheckedProduct(before[name], form, sites, self._score, self._note)
        try:
            yield
        finally:
            attributes.update(before)

    def _note(self, site: Site, score: Callable[[], Tensor]) -> None:
        try:
            with own_work(), without_gradients():
                table().note([site.slot], score())
        except Exception as error:  # whatever it is: the detector's own failure must not end a training
            self._problem(f"{site.name} was not computed: {error!r}")


def _layer(place: Place, base: Any) -> type:
    class Sampled(base):
        def __call__(self, *args, **kwargs):
            call, place.is_called = super().__call__, True
            return call(*args, **kwargs) if place.calls == 0 else place.call(self, lambda: call(*args, **kwargs))

        def __reduce_ex__(self, protocol):
            """Makes copies and pickles instances of the base class."""
            make, (_, *given), *rest = super().__reduce_ex__(protocol)
            return (make, (base, *given), *rest)

    return Sampled


def _tensors(output: Any) -> list[Tensor]:
    return [each for each in (output if isinstance(output, tuple | list) else [output]) if isinstance(each, Tensor)]
