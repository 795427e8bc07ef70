"""Self-test of a device: all parts of the checks, against NumPy.

__main__ ── one mode in one process
measuring, refusing, repeating ── what is tested
known_answers ── known-answer tests, repeated for a time
values, outcome ── the numbers, and the report of each check
"""
