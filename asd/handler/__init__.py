"""The fault handler: takes in events, counts strikes, applies verdicts, and has a device isolated or released.

    Store ── what is known, in SQLite
    Policy ── every number that decides
    FaultHandler(store, policy, isolator, publish).handle(event) ── returns a Decision

It runs inside a training as well as in the command `asd handler`, and imports neither MindSpore nor any scheduler.
"""

from asd.handler.act.executor import NoIsolator
from asd.handler.db.store import Store
from asd.handler.handler import FaultHandler
from asd.handler.model.decision import Decision
from asd.handler.model.identity import job_of
from asd.handler.model.policy import Policy

__all__ = ["Decision", "FaultHandler", "NoIsolator", "Policy", "Store", "job_of"]
