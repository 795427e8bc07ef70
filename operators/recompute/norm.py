"""A norm that is checked by computing it again: forward, and the gradients of its input and its weights.

The results are those of the bare norm, bit for bit: it is called on the same tensors, between two identities. The first
hands x on twice. The second takes in the other x and gives it the gradient of y, so that the backward pass of the first
sees all there is to check: x, dy, and what the norm made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.tap import alias, hidden
from asd.operators.private.mixed_precision import CheckCell, as_operator_reads, read, type_of_own_holder
from asd.operators.recompute.score import ResultCheck, WriteScore, rounding_to, underflow_in
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.readings.reading import NORM

__all__ = ["CheckedNorm"]

_SUFFIX = ".checksum"
_PARTS = ("", "_dx", "_dw")
_UNIT = 2.0**-24
_WIDER = 4.0
"""Than float64 would need: all is computed in float32."""
_MOST_CANCELLED, _ANYTHING, _LARGEST_VARIANCE = 0.4, 1e18, 1e24
_OF_BLOCK, _OF_WEIGHT = (2, 3), (0, 3)
"""Axes of (batches, groups, channels of a group, elements of a channel)."""


class CheckedNorm(nn.Cell):
    """`norm(x, gamma, beta)` with its checks.

    Args:
        norm: Any callable of x, gamma and beta, or of x and gamma, that returns y or a tuple that begins with it.
        name: Name of the place; its checkpoints are `name.checksum`, `name.checksum_dx` and `name.checksum_dw`.
        groups: Of channels that are normalized together, for x of shape (N, C, ...); 0 for the last axes.
        centred: Whether the mean is taken away.
        epsilon: Added to the variance.
        shifted: Whether there is a beta.

    Attributes:
        holder: The cell whose code calls it; None where that is not known.
        sites: The checkpoints of y, of dx, and of the gradients of gamma and beta.
    """

    parameter_type = property(type_of_own_holder)
    """What a compiled graph casts a Parameter to where it is called; None where it casts nothing."""

    def __init__(
        self, norm: Callable[..., Any], name: str, *, groups: int, centred: bool, epsilon: float, shifted: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self.norm, self.shifted = norm, shifted
        self.sites: list[Site] = [slots.new_site(name + _SUFFIX + part, NORM) for part in _PARTS]
        self.is_due = slots.is_due  # of the table it was made for, whichever is the process's later
        self.slots = hidden(slots.worst, slots.tallies, slots.due)
        self.holder: Any = None
        check = NormCheck(self.sites, groups=groups, centred=centred, epsilon=epsilon, shifted=shifted)
        self.begin, self.end = _Begin(check), _End(check)

    def rename(self, name: str) -> None:
        """Gives the checkpoints the name of another place."""
        for site, part in zip(self.sites, _PARTS, strict=True):
            site.name = name + _SUFFIX + part

    def __call__(self, *operands):
        """The norm in PyNative, without the cost of a backward pass in Python where nothing is due in this step."""
        if any(map(self.is_due, self.sites)):
            return super().__call__(*as_operator_reads(*operands))
        return self.norm(*operands)

    def construct(self, x, gamma, *more):
        """The norm with its checks."""
        x, gamma = read(x, self.parameter_type), read(gamma, self.parameter_type)
        beta = read(more[0], self.parameter_type) if self.shifted else F.stop_gradient(gamma)
        slots = self.slots()
        x, gamma, beta, again = self.begin(x, gamma, beta, *slots)
        outputs = self.norm(x, gamma, beta) if self.shifted else self.norm(x, gamma)
        y = outputs[0] if isinstance(outputs, tuple) else outputs
        if F.dtype(y) != F.dtype(x) or F.shape(y) != F.shape(x):
            raise TypeError("a norm that is checked must return y in the type and shape of x.")
        # What is only looked at must get no gradient, not even zeros that are added to it.
        y = self.end(y, again, F.stop_gradient(x), F.stop_gradient(gamma), F.stop_gradient(beta), *slots)
        return (y, *outputs[1:]) if isinstance(outputs, tuple) else y


class _Begin(CheckCell):
    """Identity of the operands, and of x once more, whose backward pass checks all gradients.

    A backward pass must be given the Parameters it writes.
    """

    def __init__(self, check: NormCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, x, gamma, beta, worst, tallies, due):
        return alias(x), alias(gamma), alias(beta), alias(x)

    def bprop(self, x, gamma, beta, worst, tallies, due, out, dout):
        dx, dgamma, dbeta, dy = dout
        done = self.check.backward(x, gamma, dy, dx, dgamma, dbeta, worst, tallies, due)
        zeros = F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)
        return F.depend(dx, done), F.depend(dgamma, done), dbeta, *zeros


class _End(CheckCell):
    """Identity of y, checked in the backward pass, that tells the other x what the gradient of y is."""

    def __init__(self, check: NormCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, y, again, x, gamma, beta, worst, tallies, due):
        return alias(y)

    def bprop(self, y, again, x, gamma, beta, worst, tallies, due, out, dout):
        dout = F.depend(dout, self.check(x, gamma, beta, y, worst, tallies, due))
        unused = F.zeros_like(x), F.zeros_like(gamma), F.zeros_like(beta)
        return dout, dout, *unused, F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)


class NormCheck(ResultCheck):
    """Judges a norm when it is its turn and writes the scores into slots.

    y = n * gamma + beta with n = (x - mean) / sqrt(var + epsilon), in float32. With d = dy * gamma, and means over what
    is normalized together, the gradient of x is (d - mean(d) - n * mean(d * n)) / sqrt(var + epsilon). A result that is
    not finite is not judged: tier `finite` sees it. A compiled graph computes all this in every step; it counts when it
    is due.

    Args:
        sites: Of y, of dx, and of the gradients of gamma and beta.
        groups: Of channels that are normalized together; 0 for the last axes.
        centred: Whether the mean is taken away.
        epsilon: Added to the variance.
        shifted: Whether there is a beta.
    """

    def __init__(self, sites: list[Site], *, groups: int, centred: bool, epsilon: float, shifted: bool) -> None:
        super().__init__(*sites)
        self.groups, self.centred, self.epsilon, self.shifted = groups, centred, epsilon, shifted
        self.of_y, self.of_dx, self.of_dw = (WriteScore(site.slot) for site in sites)
        self.mean, self.sum, self.sum_all = P.ReduceMean(keep_dims=True), P.ReduceSum(keep_dims=True), P.ReduceSum()
        self.abs, self.sqrt, self.finite, self.largest = P.Abs(), P.Sqrt(), P.IsFinite(), P.ReduceMax()
        self.maximum = P.Maximum()

    def construct(self, x, gamma, beta, y, worst, tallies, due):
        """Judges the output; a number that depends on all that was written."""
        normal, gamma, _, shift, stretch, healthy = self.normalize(x, gamma)
        product = normal * gamma
        tolerance = self.abs(gamma) * shift + stretch * self.abs(product)
        if self.shifted:
            beta = F.cast(beta, ms.float32).reshape(gamma.shape)
            tolerance = tolerance + stretch * self.abs(beta)
            product = product + beta
        score, judged = self.compare(y, product, tolerance)
        return self.of_y(score, judged * healthy, worst, tallies, due)

    def backward(self, x, gamma, dy, dx, dgamma, dbeta, worst, tallies, due):
        """Judges the gradients in the same way."""
        normal, gamma, rstd, shift, stretch, healthy = self.normalize(x, gamma)
        dy = F.cast(dy, ms.float32).reshape(normal.shape)
        d, magnitude, rounding = dy * gamma, self.abs(normal), self.rounding(self.of_block(normal))
        size, along = self.mean(self.abs(d), _OF_BLOCK), self.mean(d * normal, _OF_BLOCK)
        along_size = self.mean(self.abs(d * normal), _OF_BLOCK)
        expected, sums = d - normal * along, self.abs(d) + magnitude * along_size
        if self.centred:
            expected, sums = expected - self.mean(d, _OF_BLOCK), sums + size
        off = shift + stretch * magnitude
        tolerance = (rounding + stretch) * sums + self.abs(along) * off
        tolerance = tolerance + magnitude * (shift * size + stretch * along_size)
        score, judged = self.compare(dx, rstd * expected, rstd * tolerance)
        done = self.of_dx(score, judged * healthy, worst, tallies, due)

        terms, weight_rounding = dy * normal, self.rounding(normal.shape[0] * normal.shape[3])
        tolerance = self.sum(self.abs(dy) * off, _OF_WEIGHT) + weight_rounding * self.sum(self.abs(terms), _OF_WEIGHT)
        score, judged = self.compare(dgamma, self.sum(terms, _OF_WEIGHT), tolerance)
        if self.shifted:
            tolerance = weight_rounding * self.sum(self.abs(dy), _OF_WEIGHT)
            of_beta, also = self.compare(dbeta, self.sum(dy, _OF_WEIGHT), tolerance)
            score, judged = self.maximum(score, of_beta), judged * also
        return F.depend(done, self.of_dw(score, judged * healthy, worst, tallies, due))

    def normalize(self, x, gamma):
        """What both directions need.

        Returns:
            (x - mean) * rstd, gamma and rstd, of four dimensions each; by how much the first may be off, beside and
            relative to itself; and 1 where all is finite.
        """
        coarse = 0 if x.dtype == ms.float32 else rounding_to(x.dtype)
        step = underflow_in(x.dtype)
        groups, channels = (self.groups, x.shape[1]) if self.groups else (1, gamma.size)
        batches = x.shape[0] if self.groups else -1
        x = F.cast(x, ms.float32).reshape((batches, groups, channels // groups, -1 if self.groups else 1))
        gamma = F.cast(gamma, ms.float32).reshape((1, groups, channels // groups, 1))
        rounding = self.rounding(self.of_block(x))
        mean = self.mean(x, _OF_BLOCK) if self.centred else 0
        square = self.mean(x * x, _OF_BLOCK)
        middle = x - mean
        variance = self.mean(middle * middle, _OF_BLOCK) + self.epsilon
        rstd = 1.0 / self.sqrt(variance)
        stretch, shift = 2 * rounding + 4 * coarse, self.abs(rstd) * 0
        if self.centred:
            cancelled = rounding * square / variance
            # Where nothing is left of the variance in float32 nothing can be said.
            lost = F.cast(cancelled > _MOST_CANCELLED, ms.float32) * _ANYTHING
            stretch = stretch + cancelled + lost
            shift = (rounding * self.mean(self.abs(x), _OF_BLOCK) + coarse * self.abs(mean) + step) * rstd + lost
        healthy = self.finite(self.sum_all(square * 0) + self.sum_all(rstd * 0) + self.sum_all(gamma * 0))
        in_range = F.cast(self.largest(variance) < _LARGEST_VARIANCE, ms.float32)
        return middle * rstd, gamma, rstd, shift, stretch, (F.cast(healthy, ms.float32) * in_range).reshape((1,))

    @staticmethod
    def of_block(x):
        """How many elements are normalized together."""
        return x.shape[2] * x.shape[3]

    @staticmethod
    def rounding(n):
        """What a float32 sum of n numbers may be off, relative to their magnitudes."""
        return _WIDER * _UNIT * (16 + n / 2)

    def compare(self, found, expected, tolerance):
        """The worst residual as a multiple of its tolerance, and 1 where that says something."""
        tolerance = tolerance + rounding_to(found.dtype) * self.abs(expected) + underflow_in(found.dtype)
        found = F.cast(found, ms.float32).reshape(expected.shape)
        score = self.largest(self.abs(found - expected) / tolerance)
        judged = self.finite(self.sum_all(found * 0) + self.sum_all(expected * 0) + self.sum_all(tolerance * 0))
        return score.reshape((1,)), F.cast(judged, ms.float32).reshape((1,))
