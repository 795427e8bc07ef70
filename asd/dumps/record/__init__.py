"""Writes dumps: settings, selection, JSON files, tables of overflows and of gradients."""
