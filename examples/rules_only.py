"""Rules judge plain floats: three rules look at the same series, without MindSpore.

A value jumps to 60 times its usual size at step 150 and to infinity at step 160. The vendor's default thresholds let
the first pass; `adaptive` has learned the healthy range, and warns: only what lasts, or is enormous, is an error.
`silent_check_v3`, as published, takes the infinity into its mean and is blind from then on.
"""

import math
import random

from asd import Level
from asd.rules import Adaptive, SilentCheckV3, Threshold

rules = {"threshold": Threshold(), "silent_check_v3": SilentCheckV3(), "adaptive": Adaptive()}
noise = random.Random(1)

for step in range(1, 201):
    value = math.exp(noise.gauss(0, 0.1)) / math.sqrt(step)  # a gradient norm that shrinks as training goes on
    if step == 150:
        value *= 60
    if step == 160:
        value = math.inf
    for name, rule in rules.items():
        verdict = rule.update(value)
        if verdict.level is not Level.NORMAL:
            print(f"step {step}: {name} says {verdict.level.name} of {value:.3g}, {verdict.reason}")

print("largest value that is healthy next:", {name: float(f"{rule.limit():.3g}") for name, rule in rules.items()})

# What a rule remembers is a handful of numbers; another rule goes on from them.
resumed = Adaptive()
resumed.restore(rules["adaptive"].state())
print("a restored rule has the same limit:", resumed.limit() == rules["adaptive"].limit())
