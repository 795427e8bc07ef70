"""The debugger: dumps of modules, APIs and operators, and the search for an overflow. See `precision_debugger.py`.

May import: `gate`, `precheck` and what is below them.
"""
