"""Gradients step by step, without MindSpore: their statistics as tables, and how alike those of two runs are.

May import: `formats`, `rundir`.
"""
