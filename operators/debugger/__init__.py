"""The debugger: dumps of modules, APIs and operators, and the search for an overflow."""
