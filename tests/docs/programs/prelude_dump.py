"""The same for a page about dumps, with a configuration as it stands there."""

import json
from pathlib import Path

exec(compile((Path(__file__).parent / "prelude_training.py").read_text(), "prelude_training.py", "exec"))

Path("config.json").write_text(json.dumps({"task": "statistics", "level": "L0", "dump_path": "dump", "step": [0, 1]}))
