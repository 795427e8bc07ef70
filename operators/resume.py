"""Documented import path of the functions for resuming a training: see `asd.operators.monitor.resume`."""

from asd.operators.monitor.resume import CheckpointWatch, checkpoint_to_resume, state_path, state_to_resume
from asd.operators.sensors.optimizers import updates_of as resumed_step

__all__ = ["CheckpointWatch", "checkpoint_to_resume", "resumed_step", "state_path", "state_to_resume"]
