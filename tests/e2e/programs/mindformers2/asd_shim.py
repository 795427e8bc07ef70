"""What the yaml names: `REGISTER_PATH` points at the folder of this file."""

from asd.operators import ASDMonitor  # noqa: F401
