"""The sizes of a tensor that detectors judge."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["features"]

Array = np.ndarray[Any, Any]


def features(value: Array, unscale: float = 1.0) -> tuple[float, float, float, float]:
    """Largest magnitude and mean magnitude of the finite elements, L2 norm, and count of the others.

    Returns:
        max|t|, L2, mean|t|, non-finite count, the first three times `unscale`.
    """
    flat = value.reshape(-1)
    magnitude = np.abs(flat)
    with np.errstate(invalid="ignore"):
        mean = float(magnitude.mean(dtype=np.float64))
    if mean - mean != 0.0:
        finite = magnitude[np.isfinite(magnitude)]
        largest, mean = (float(finite.max()), float(finite.mean(dtype=np.float64))) if finite.size else (0.0, 0.0)
        return largest * unscale, float(np.linalg.norm(flat)), mean * unscale, float(flat.size - finite.size)
    l2 = float(np.dot(flat, flat))
    if not 1e-30 < l2 < 1e37:  # float32 squares would leave their range
        l2 = float(np.square(flat, dtype=np.float64).sum())
    return float(magnitude.max()) * unscale, l2**0.5 * unscale, mean * unscale, 0.0
