"""Ten events a second of one flapping device are one line a minute."""

from asd.cli.act.decision_limiter import DecisionLimiter
from asd.handler.decision import Decision
from asd.isolator import Device

ONE, TWO = Device("node7", "Ascend:3", 3), Device("node7", "Ascend:4", 4)


def decision(action="waiting", device=ONE, number=0):
    return Decision(action=action, reason=f"number {number}.", time=float(number), device=device)


def told(news, decisions, now):
    return [(each.action, each.reason) for each in news.of(decisions, now)]


def test_of_a_crowd_one_a_minute_is_told():
    news, lines = DecisionLimiter(), []
    for tenth in range(1300):  # ten a second for 130 s
        lines += told(news, [decision(number=tenth)], tenth / 10)
    assert lines == [("waiting", f"number {number}.") for number in (0, 600, 1200)]


def test_another_device_and_another_action_are_no_part_of_it():
    news = DecisionLimiter()
    assert len(told(news, [decision(), decision(device=TWO), decision("breaker"), decision()], 0.0)) == 3
    of_nobody = [decision("problem", None, number) for number in (1, 1, 2)]  # alike when it says the same
    assert len(told(news, of_nobody, 0.0)) == 2


def test_what_is_done_about_a_device_is_always_told():
    news = DecisionLimiter()
    actions = ("isolating", "isolated", "released", "would-isolate", "failed")
    assert len(told(news, [decision(action) for action in actions * 2], 0.0)) == 10


def test_a_clock_that_is_set_back_ends_a_crowd():
    news = DecisionLimiter()
    assert len(told(news, [decision(number=number) for number in range(3)], 1000.0)) == 1
    assert len(told(news, [decision()], 10.0)) == 1
