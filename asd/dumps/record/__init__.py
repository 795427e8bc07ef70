"""How a dump is written: settings, selection, JSON files, the tables of overflows and of gradients."""
