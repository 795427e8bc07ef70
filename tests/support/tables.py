"""Tables of cases: `make test` runs the first, `make test-slow` the others."""

import pytest


def quick(number, cases):
    """The cases, of which those after the first `number` are slow."""
    slow = [each if isinstance(each, tuple) else (each,) for each in cases[number:]]
    return [*cases[:number], *(pytest.param(*each, marks=pytest.mark.slow) for each in slow)]
