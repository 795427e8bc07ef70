"""The check of a norm by MindSpore operators, for devices and installations without the C++ kernel.

The same formulas as in `norm_check.cpp`, in float32, so the tolerance is wider. A result that is not finite is not
judged: tier `finite` sees it. A compiled graph computes all this in every step; it counts when it is due.
"""

from __future__ import annotations

import mindspore as ms
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.mixed_precision import CheckCell
from asd.operators.recompute.score import WriteScore, rounding_to, underflow_in
from asd.operators.table.site import Site

__all__ = ["OperatorNorm"]

_UNIT = 2.0**-24
_WIDER = 4.0
"""Than that of the kernel, which computes in float64."""
_MOST_CANCELLED, _ANYTHING, _LARGEST_VARIANCE = 0.4, 1e18, 1e24
_OF_BLOCK, _OF_WEIGHT = (2, 3), (0, 3)
"""Axes of (batches, groups, channels of a group, elements of a channel)."""


class OperatorNorm(CheckCell):
    """Judges a norm when it is its turn and writes the scores into slots.

    Args:
        sites: Of y, of dx, and of the gradients of gamma and beta.
        groups: See `asd.operators.kernel.norm.check_norm`.
        centred: See there.
        epsilon: See there.
        shifted: Whether there is a beta.
    """

    def __init__(self, sites: list[Site], *, groups: int, centred: bool, epsilon: float, shifted: bool) -> None:
        super().__init__()
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
