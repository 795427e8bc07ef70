"""The self-test of a device: all that checks are made of, against NumPy.

__main__ ── one mode in one process
primitives, measuring, refusing, repeating ── what is tested
known_answers, workloads ── work whose answers NumPy finds without the device, repeated for a time
values, outcome ── the numbers, and how what came out is told

May import: all other rooms.
"""
