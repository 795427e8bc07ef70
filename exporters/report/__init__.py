"""The report: one HTML file that tells what happened in a run.

May import: `run_files`, and `asd.dumps`.
"""
