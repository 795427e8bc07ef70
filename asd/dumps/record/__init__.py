"""How a dump is written: its settings, what is selected, the journal, the three JSON files, the record of overflows.

May import: `formats`, `gradients`, `rundir`.
"""
