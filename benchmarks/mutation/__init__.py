"""Mutation testing: the code that judges and decides is changed in one place at a time, and a test has to notice.

Cosmic-ray says how a place can be changed. Changed source is never written: a process with all tests collected forks,
the copy gets the changed function and runs the tests that call it, the quickest first, until one fails.
"""
