"""How a dump is written: its settings, what is selected, the journal, the three JSON files, the classic lines.

May import: `formats`, `gradients`, `rundir`.
"""
