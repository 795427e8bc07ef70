"""Tables of cases: `make test` runs the first, `make test-slow` the others."""

import pytest


def quick(number, cases):
    """The cases, of which those after the first `number` are slow; a tuple has a value for each argument."""
    values = [each if isinstance(each, tuple) else (each,) for each in cases]
    return [pytest.param(*each, marks=pytest.mark.slow if n >= number else ()) for n, each in enumerate(values)]
