"""What every isolator must do, whatever engine it works on. A subclass brings the fixture `engine`."""

import time

import pytest
from isolator_engines import FAR, ONE, TWO

from asd.errors import IsolationError
from asd.handler import FaultHandler, Policy, Store
from asd.isolator import Device, IsolationOwner
from tests.support.events import event_maker, growing
from tests.support.tables import quick

fields = {"run": "llama", "host": "n0", "rank": 3, "device": "Ascend:3", "kind": "replay", "verdict": "persistent"}
verdict = event_maker(**fields, value=growing, time=lambda _step: time.time())

WHY = "AsdStrikeOut: \"3 of 3\"\nin \x1b[31m480\x00 minutes; $(reboot) `x` 'y' 训练\u2028"
EVENT = "573d6a3ad8e8c4dba6d5d1b0ff0c5b2e"
ODD = ('"Ascend:3"', "Ascend:3\nAscend:4", "昇腾:3", "Ascend:3, Ascend:4 evt-1")
ODD += ("../../Ascend:3", "A" * 300, "$(reboot):1")
ODD_HOSTS = ("n[0-1]", "n0,n1", "n0 n1", "ALL", "n0\nn1", "../n0", "主机", "-n0", "n0;reboot", "", "x" * 300)


class Conformance:
    def test_the_engine_is_as_before_when_everything_was_given_back(self, engine):
        isolator, before = engine.make(), engine.state()
        for device in (ONE, TWO, FAR):
            isolator.isolate(device, WHY, EVENT)
        assert engine.state() != before
        for device in (TWO, FAR, ONE):
            isolator.release(device)
        assert engine.state() == before

    def test_isolating_once_more_changes_nothing(self, engine):
        isolator = engine.make()
        isolator.isolate(ONE, WHY, EVENT)
        once = engine.state()
        isolator.isolate(ONE, "another reason", "another-event")
        assert engine.state() == once

    def test_releasing_a_free_device_changes_nothing(self, engine):
        isolator, before = engine.make(), engine.state()
        isolator.release(ONE)
        assert engine.state() == before
        isolator.isolate(ONE, WHY, EVENT)
        isolator.release(ONE)
        isolator.release(ONE)
        assert engine.state() == before

    def test_what_others_hold_is_neither_taken_over_nor_given_back(self, engine):
        isolator = engine.make()
        engine.others(ONE)
        theirs = engine.state()
        assert isolator.held(ONE) is IsolationOwner.OTHERS
        with pytest.raises(IsolationError, match="someone else .*not changed") as caught:
            isolator.isolate(ONE, WHY, EVENT)
        assert not caught.value.retry
        assert engine.state() == theirs
        isolator.release(ONE)
        assert engine.state() == theirs
        assert isolator.held(ONE) is IsolationOwner.OTHERS

    def test_two_devices_of_one_host_are_out_and_back_one_by_one(self, engine):
        isolator = engine.make()
        isolator.isolate(ONE, WHY, EVENT)
        assert isolator.held(TWO) is IsolationOwner.FREE
        only_one = engine.state()
        isolator.isolate(TWO, WHY, EVENT)
        assert (isolator.held(ONE), isolator.held(TWO)) == (IsolationOwner.OURS, IsolationOwner.OURS)
        isolator.release(TWO)
        assert (isolator.held(ONE), isolator.held(TWO)) == (IsolationOwner.OURS, IsolationOwner.FREE)
        assert engine.state() == only_one

    @pytest.mark.parametrize("name", ODD)
    def test_an_odd_device_is_refused_or_is_itself_only(self, engine, name, host="n0"):
        isolator, before, odd = engine.make(), engine.state(), Device(host, name, 3)
        try:
            isolator.isolate(odd, WHY, EVENT)
        except IsolationError as error:
            assert not error.retry  # noqa: PT017 - either is right
            assert engine.state() == before
            return
        assert isolator.held(odd) is IsolationOwner.OURS
        assert (isolator.held(ONE), isolator.held(TWO), isolator.held(FAR)) == (IsolationOwner.FREE,) * 3
        isolator.release(odd)
        assert engine.state() == before

    @pytest.mark.parametrize("host", ODD_HOSTS)
    def test_an_odd_host_is_refused_or_is_itself_only(self, engine, host):
        isolator, before, odd = engine.make(), engine.state(), Device(host, "Ascend:3", 3)
        if engine.refuses_strangers:
            with pytest.raises(IsolationError) as caught:
                isolator.isolate(odd, WHY, EVENT)
            assert not caught.value.retry
            assert "\n" not in str(caught.value).removeprefix(f"{isolator.name} failed for {odd}")
            assert engine.state() == before
        else:
            self.test_an_odd_device_is_refused_or_is_itself_only(engine, "Ascend:3", host)
        assert (isolator.held(ONE), isolator.held(FAR)) == (IsolationOwner.FREE, IsolationOwner.FREE)

    def test_a_failing_engine_is_an_error_in_one_sentence_and_nothing_is_half_done(self, engine):
        for how, retry in engine.failures.items():
            isolator, before = engine.make(), engine.state()
            with engine.failing(how):
                calls = [lambda: isolator.isolate(ONE, WHY, EVENT), lambda: isolator.held(ONE)]  # noqa: B023
                for call in calls:
                    with pytest.raises(IsolationError) as caught:
                        call()
                    assert caught.value.retry is retry, (how, str(caught.value))
                    assert "\n" not in str(caught.value), how
            assert engine.state() == before, how
            isolator.isolate(ONE, WHY, EVENT)
            out = engine.state()
            with engine.failing(how), pytest.raises(IsolationError):
                isolator.release(ONE)
            assert engine.state() == out, how
            assert isolator.held(ONE) is IsolationOwner.OURS
            isolator.release(ONE)
            assert engine.state() == before, how

    @pytest.mark.parametrize("action", quick(1, ["isolate", "release"]))
    def test_what_a_killed_process_began_is_brought_to_its_end_by_the_next(self, engine, action):
        before = engine.state()
        engine.make().isolate(ONE, "why", "e" * 32)
        out = engine.state()
        deaths = 0
        for at in range(40):
            isolator = engine.make()
            isolator.release(ONE) if action == "isolate" else isolator.isolate(ONE, "why", "e" * 32)
            if not engine.crashes(ONE, action, at):
                break
            deaths += 1
            isolator = engine.make()
            held = isolator.held(ONE)
            assert held is not IsolationOwner.OTHERS
            # What the fault handler does when it starts again: it asks, and acts only when there is something to do.
            if action == "isolate" and held is IsolationOwner.FREE:
                isolator.isolate(ONE, "why", "e" * 32)
            if action == "release" and held is IsolationOwner.OURS:
                isolator.release(ONE)
            assert engine.state() == (out if action == "isolate" else before), f"killed at change {at}"
        else:
            pytest.fail("it never got to its end")
        assert deaths >= engine.least_deaths
        assert engine.make().held(ONE) is (IsolationOwner.OURS if action == "isolate" else IsolationOwner.FREE)


class NodesThatComeAndGo:
    """What an isolator must do besides whose engine makes a node anew when another machine gets its name."""

    def test_a_verdict_on_a_node_that_is_gone_is_said_and_waits_for_no_next_of_its_name(self, engine, tmp_path):
        told = []

        def begin():
            policy = Policy(retry_seconds=0.1, longest_pause_seconds=0.1)
            return FaultHandler(Store(tmp_path / "handler.sqlite"), policy, engine.make(), told.append)

        def tick(handler):
            time.sleep(0.2)
            return [decision.action for decision in handler.tick()]

        first = begin()
        engine.leave("n0")
        failed = first.handle(verdict(1))
        assert failed.action == "failed"
        assert tick(first) == ["isolating"]
        first.close()
        engine.come("n0")
        fresh, second = engine.state(), begin()
        assert [decision.device.host for decision in second.tick()] == ["n0"]
        assert (tick(second), engine.state(), told) == ([], fresh, [])
        assert second.handle(verdict(2)).action == "isolated"
        engine.others(FAR)  # as who drains a node before it is taken away
        assert second.handle(verdict(3, host="n1")).action == "others"
        engine.leave("n1")
        time.sleep(1.1)  # the engine keeps whole seconds
        engine.come("n1")
        assert tick(second) == ["dropped"]
        assert engine.make().held(FAR) is IsolationOwner.FREE
        second.close()
