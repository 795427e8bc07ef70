"""The report: one HTML file that tells what happened in a run.

May import: `pictures` and `run_files`.
"""
