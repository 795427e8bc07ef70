"""The self-test of a device: all that checks are made of, against NumPy.

__main__ ── one mode in one process
measuring, refusing, repeating ── what is tested
known_answers ── work whose answers NumPy finds without the device, repeated for a time
values, outcome ── the numbers, and how what came out is told
"""
