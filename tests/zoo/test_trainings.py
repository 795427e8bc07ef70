"""What a training of the zoo says about itself."""

import pytest

ms = pytest.importorskip("mindspore")

import trainings  # noqa: E402 - it imports MindSpore
from trainings import Training  # noqa: E402

pytestmark = pytest.mark.zoo


def train():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return Training("swiglu", "dynamic")


def test_a_training_that_overflows_at_every_loss_scale_is_none_though_its_losses_are_finite(monkeypatch):
    monkeypatch.setattr(trainings, "IN_FLOAT32", ())
    training = train()
    assert training.failure == "its weights stay as they are: each step overflows, at every loss scale"
    assert training.scaler.scale_value.asnumpy() == 1


def test_with_its_norms_in_float32_it_trains():
    training = train()
    assert training.failure == ""
    assert training.scaler.scale_value.asnumpy() == 1024
