"""Runs blocks of Python one after another: `blocks.py < JSON`. The blocks of a page share their names."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
pages = {}
for place, page, text, name in json.load(sys.stdin):
    print(place, flush=True)
    prelude = HERE / f"prelude_{name}.py"
    names = pages.setdefault(page, {"__name__": "__main__", "__file__": str(prelude)})
    if prelude.is_file():
        exec(compile(prelude.read_text(), str(prelude), "exec"), names)
    exec(compile(text, place, "exec"), names)
