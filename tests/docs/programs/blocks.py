"""Runs blocks of Python one after another: `blocks.py PRELUDE < JSON`. The blocks of a page share their names."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
prelude = HERE / f"prelude_{sys.argv[1]}.py"
pages = {}
for place, page, text in json.load(sys.stdin):
    print(place, flush=True)
    names = pages.setdefault(page, {"__name__": "__main__", "__file__": str(prelude)})
    if prelude.is_file():
        exec(compile(prelude.read_text(), str(prelude), "exec"), names)
    exec(compile(text, place, "exec"), names)
