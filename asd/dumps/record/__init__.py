"""How a dump is written: settings, selection, journal, JSON files, the tables of overflows and of gradients.

May import: `formats`, `rundir`.
"""
