"""How a dump is written: its settings, what is selected, the journal, the three JSON files.

May import: `formats`, `gradients`, `rundir`.
"""
