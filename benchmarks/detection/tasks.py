"""What the networks learn: seeded, so a batch follows from the run's seed, the step and the rank alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.detection.families import Family

__all__ = ["batch"]

Array = np.ndarray[Any, Any]


def batch(
    family: Family, seed: int, step: int, rank: int, *, shifted: bool = False, garbage: bool = False
) -> tuple[Array, Array]:
    """Inputs and labels of one micro-batch.

    Args:
        family: Decides the task and the shapes.
        seed: Of the run; the task itself follows from it too.
        step: Negative for the batches of the evaluation.
        rank: Which replica.
        shifted: Whether the data come from another source than at the start.
        garbage: Whether inputs and labels are random.
    """
    random = np.random.default_rng([seed, step + 1000, rank])
    source = seed + 1 if shifted else seed
    if family.kind == "convolution":
        return _images(family, random, source, garbage=garbage)
    if family.kind == "encoder":
        return _classes(family, random, source, garbage=garbage)
    return _text(family, random, source, garbage=garbage)


@cache
def _successors(vocabulary: int, source: int) -> Array:
    """Five likely successors of each token; the first is the likeliest."""
    return np.random.default_rng([source, 1]).integers(0, vocabulary, (vocabulary, 5))


def _text(family: Family, random: np.random.Generator, source: int, *, garbage: bool) -> tuple[Array, Array]:
    tokens = random.integers(0, family.vocabulary, (family.batch, family.length + 1))
    if not garbage:
        table = _successors(family.vocabulary, source)
        choice = np.minimum(random.geometric(0.5, tokens.shape) - 1, 4)
        for i in range(family.length):
            tokens[:, i + 1] = table[tokens[:, i], choice[:, i]]
    tokens = tokens.astype(np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1)


def _classes(family: Family, random: np.random.Generator, source: int, *, garbage: bool) -> tuple[Array, Array]:
    """Each class has a few tokens it likes; half of a sequence are these."""
    labels = random.integers(0, family.vocabulary, family.batch)
    liked = _successors(family.vocabulary, source)[labels]
    tokens = random.integers(0, family.vocabulary, (family.batch, family.length))
    if not garbage:
        at = random.integers(0, 5, tokens.shape)
        tokens = np.where(random.random(tokens.shape) < 0.5, np.take_along_axis(liked, at, 1), tokens)
    return tokens.astype(np.int32), labels.astype(np.int32)


def _images(family: Family, random: np.random.Generator, source: int, *, garbage: bool) -> tuple[Array, Array]:
    shape = (3, family.length, family.length)
    labels = random.integers(0, family.vocabulary, family.batch)
    noise = random.standard_normal((family.batch, *shape))
    images = 5 * noise if garbage else _templates(family.vocabulary, source, shape)[labels] + noise
    return images.astype(np.float32), labels.astype(np.int32)


@cache
def _templates(classes: int, source: int, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng([source, 2]).standard_normal((classes, *shape))
