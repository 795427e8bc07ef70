"""Every detector of the benchmark by its name: the package's tiers and the published rules behind one interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asd.rules import Combined, Rule, SilentCheckV3, Threshold
from benchmarks.detection.alarm import Setup
from benchmarks.detection.published import Megatron, Moving, NotFinite, PerSite, Spam
from benchmarks.detection.tiers import Bounds, Hash, Seals, SecondLook, Sites

__all__ = ["COMPOSITES", "DETECTORS", "WITH_SECOND_LOOK"]

HASH_EVERY = 50
WITH_SECOND_LOOK = "asd adaptive + second look"


def _v2(vendor: bool) -> Callable[[], Rule]:
    return lambda: Threshold(vendor_exact=vendor)


DETECTORS: dict[str, Callable[[Setup], Any]] = {
    "asd finite+adaptive+ranks": Sites,
    "asd second look": SecondLook,
    "asd state bound": Bounds,
    "asd state seal": Seals,
    "asd weight hash": lambda setup: Hash(setup, HASH_EVERY),
    "asd weight hash, each step": lambda setup: Hash(setup, 1),
    "NaN only": NotFinite,
    "Ascend V2": lambda setup: PerSite(setup, _v2(True), "G"),
    "Ascend V2, mended (default)": lambda setup: PerSite(setup, _v2(False), "G"),
    "Ascend V3": lambda setup: PerSite(setup, SilentCheckV3, "BGW"),
    "Ascend V3, recalibrated to 2^9": lambda setup: PerSite(setup, lambda: SilentCheckV3((512, 256)), "BGW"),
    "combined, every gradient": lambda setup: PerSite(setup, Combined, "W"),
    "combined, every 3rd": lambda setup: PerSite(setup, Combined, "W", 3),
    "combined, every 10th": lambda setup: PerSite(setup, Combined, "W", 10),
    "gradient norm spike": lambda setup: Moving(setup, "norm", 6.0, 0.98),
    "loss spike": lambda setup: Moving(setup, "loss", 6.0, 0.98),
    "ZClip": lambda setup: Moving(setup, "norm", 2.5, 0.97),
    "SPAM": Spam,
    "Megatron": Megatron,
}
"""Every detector that judges steps, by its name in the tables."""
_TIERS = ("asd finite+adaptive+ranks", "asd state bound", "asd state seal")
COMPOSITES = {
    "asd adaptive": (*_TIERS, "asd weight hash"),
    "asd adaptive, hash each step": (*_TIERS, "asd weight hash, each step"),
    WITH_SECOND_LOOK: ("asd second look", *_TIERS[1:], "asd weight hash"),
}
"""Detectors that are several others at once: what any of them finds."""
