"""The vendor's combined scheme: its settings, and its strikes by exact sequences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import ConfigError
from asd.rules.step.combined_scheme import Action, CombinedScheme, Message, Poll, Strike
from asd.settings.combined import CombinedConfig


def scheme(**settings):
    return CombinedScheme(CombinedConfig(enable=True, with_checksum=True, **settings))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("enable:true", {"enable": True}),
        ("enable = true , cooldown : 7", {"enable": True, "cooldown": 7}),
        ("with_checksum:true,,upper_thresh1:3,", {"with_checksum": True, "upper_thresh1": 3}),
        ("cooldown:007,cooldown:8", {"cooldown": 8}),
        ("upper_thresh1:10,upper_thresh2:100", {"upper_thresh1": 10, "upper_thresh2": 100}),
    ],
)
def test_the_vendors_grammar_is_read(text, expected):
    assert CombinedConfig.parse(text) == CombinedConfig(**expected)


def test_the_defaults_are_the_vendors():
    assert CombinedConfig() == CombinedConfig(False, False, 5, 3, 480, 180, 1000000, 100, 10)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("enable:True", "enable has the value 'True'"),
        ("with_checksum:yes", "with_checksum has the value 'yes'"),
        ("cooldown:0", "cooldown has the value '0'"),
        ("cooldown:00", "cooldown has the value '00'"),
        ("cooldown:-1", "cooldown has the value '-1'"),
        ("cooldown:1.5", "cooldown has the value '1.5'"),
        ("cooldown:²", "cooldown has the value '²'"),
        ("upper_thresh1:2", "upper_thresh1 has the value '2'"),
        ("upper_thresh1:1e6", "upper_thresh1 has the value '1e6'"),
        ("strikes_num:99999999999", "strikes_num has the value '99999999999'"),
        ("cooldown", "has the value 'cooldown'"),
        (":5", "has the value ':5'"),
        ("enable:true;cooldown:9", "enable has the value 'true;cooldown:9'"),
        ("colddown:5", "has the value 'colddown:5'"),
    ],
)
def test_what_the_vendor_replaces_by_a_default_is_an_error_that_names_it(text, named):
    with pytest.raises(ConfigError) as caught:
        CombinedConfig.parse(text)
    assert named in str(caught.value)
    assert "MS_NPU_ASD_CONFIG" in str(caught.value)


@given(
    st.builds(
        CombinedConfig,
        enable=st.booleans(),
        with_checksum=st.booleans(),
        cooldown=st.integers(1, 2**31 - 1),
        upper_thresh2=st.integers(3, 2**31 - 1),
        grad_sample_interval=st.integers(1, 999),
    )
)
def test_settings_written_out_are_read_back(config):
    assert CombinedConfig.parse(str(config)) == config


def test_strikes_cool_down_on_one_clock_and_at_exactly_the_cooldown_none_counts():
    ours = scheme(cooldown=1)
    found = [ours.strike(second) for second in (0, 40, 60, 81, 111)]
    assert found == [Strike.RECORDED, Strike.COOLED, Strike.COOLED, Strike.RECORDED, Strike.COOLED]
    assert ours.strikes(111) == 2


def warnings(strikes_num, minutes):
    """Where the published sequences of the twin without a checksum warn; here a strike-out uses the strikes up."""
    ours, found = scheme(strikes_num=strikes_num, checksum_cooldown=1), []
    for minute in minutes:
        ours.strike(60.0 * minute + 0.001 * len(found) + minute * 1e-6)
        poll = ours.poll([ours.message(60.0 * minute + 1, failed=False)])
        if poll.action is Action.START:
            found.append(minute)
            ours.running = False  # the twin has no checksum that strikes wait for
    return found


@pytest.mark.parametrize(
    ("strikes_num", "minutes", "expected"),
    [
        (3, (0, 1, 2, 6, 7, 12, 20, 30, 40, 50), [12, 40]),
        (3, (0, 300, 600, 700, 800), [700]),
        (2, (0, 10, 20, 30, 40), [10, 30]),
        (1, (0, 1, 10), [0, 10]),
    ],
)
def test_each_strike_counts_once(strikes_num, minutes, expected):
    assert warnings(strikes_num, minutes) == expected


def test_two_strikes_further_apart_than_the_window_are_no_strike_out():
    ours = scheme(cooldown=1, strikes_num=2, strikes_window=1)
    assert [ours.strike(second) for second in (0, 135)] == [Strike.RECORDED, Strike.RECORDED]
    assert ours.strikes(135) == 1
    assert ours.poll([ours.message(135, failed=False)]) == Poll(Action.NONE)


def test_the_checksum_starts_on_all_ranks_runs_for_the_cooldown_and_rests():
    ranks = [scheme(cooldown=1, strikes_num=2, checksum_cooldown=10) for _ in range(2)]
    found = []
    for second in range(0, 1500, 30):
        if second in (0, 90, 120, 240, 330):
            ranks[1].strike(second)
        messages = [each.message(second, failed=each is ranks[1] and each.running) for each in ranks]
        polls = {each.poll(messages) for each in ranks}
        assert len(polls) == 1
        poll = polls.pop()
        if poll.action is not Action.NONE:
            found.append((second, poll.action, poll.ranks))
    assert found == [
        (90, Action.START, (1,)),
        (150, Action.STOP, (1,)),
        (690, Action.START, (1,)),
        (750, Action.STOP, (1,)),
    ]


def test_strikes_while_the_checksum_runs_are_ignored():
    ours = scheme(cooldown=1, strikes_num=1)
    ours.strike(0)
    assert ours.poll([Message(1, True, False)]).action is Action.START
    assert ours.strike(61.5) is Strike.IGNORED
    assert ours.strikes(62) == 0


def test_without_the_checksum_strikes_are_recorded_and_nothing_else():
    ours = CombinedScheme(CombinedConfig(enable=True, strikes_num=1))
    assert ours.strike(0) is Strike.RECORDED
    assert ours.poll([ours.message(0, failed=False)]) == Poll(Action.NONE)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 900))
def test_a_scheme_that_is_restored_goes_on_as_if_it_had_never_stopped(gaps, strikes_num, window):
    one, now = scheme(strikes_num=strikes_num, strikes_window=window), 0.0
    for gap in gaps:
        now += gap
        other = scheme(strikes_num=strikes_num, strikes_window=window)
        other.restore(one.state())
        assert one.strike(now) == other.strike(now)
        message = one.message(now, failed=False)
        assert message == other.message(now, failed=False)
        assert one.poll([message]) == other.poll([message])
