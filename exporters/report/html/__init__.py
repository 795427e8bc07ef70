"""The frame of an HTML page, and markup that no text can break.

May import: nothing of `asd.exporters`.
"""
