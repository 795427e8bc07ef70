"""The report: one HTML file that says what happened in a run.

May import: `pictures` and `run_files`.
"""
