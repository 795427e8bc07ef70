"""The Trainer of mindformers in PyNative."""

from types import SimpleNamespace

import pytest

from asd.operators.start.pynative_trainer import TrainerMonitor, _as_declared, put_first


def test_the_trainer_of_mindformers_1_9_whose_steps_take_no_batches_is_left_as_it_is():
    trainer_of = pytest.importorskip("mindformers.pynative.trainer.trainer").Trainer
    put_first()
    trainer = trainer_of.__new__(trainer_of)
    trainer.callback_handler = SimpleNamespace(callbacks=[TrainerMonitor(sinks=[])])
    if hasattr(trainer, "_next_batch"):
        pytest.skip("a newer one, whose steps are declared")
    assert _as_declared(lambda own, batch: (own, batch), trainer, "batch") == (trainer, "batch")
