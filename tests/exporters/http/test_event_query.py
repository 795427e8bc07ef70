"""The filters of `/events`: each chooses what it says, and a wrong one is refused in one sentence."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import Level
from asd.exporters.http.event_query import FILTERS, QueryError, newest_first
from tests.support.events import event_maker

event = event_maker()


EVENTS = [
    event(1, time=1767225600.0),  # 2026-01-01T00:00:00Z
    event(2, time=1767229200.0, rank=-1, kind="isolation", level=Level.NORMAL),
    event(3, time=1767232800.0, rank=12, level=Level.WARNING, run="run 2", device="Ascend:1"),
    event(4, time=1767232800.0, rank=0, kind="problem", level=Level.NORMAL, checkpoint=""),
]


def steps(**query):
    return [each.step for each in newest_first(EVENTS, query)]


def test_without_a_filter_all_come_and_of_two_at_one_time_the_later_first():
    assert steps() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"rank": ["0"]}, [4, 1]),
        ({"rank": ["-1", "12"]}, [3, 2]),
        ({"level": ["first"]}, [1]),
        ({"level": ["second", "normal"]}, [4, 3, 2]),
        ({"kind": ["isolation"]}, [2]),
        ({"run": ["run 2"]}, [3]),
        ({"run": ["run"]}, []),
        ({"device": ["Ascend:1", "Ascend:7"]}, [3]),
        ({"limit": ["2"]}, [4, 3]),
        ({"rank": ["0"], "level": ["first"], "kind": ["anomaly"]}, [1]),
    ],
)
def test_a_filter_chooses(query, expected):
    assert steps(**query) == expected


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"ranks": ["0"]}, "the filter 'ranks' is not known; valid are device, rank, level, kind, run, limit."),
        ({"rank": ["x"]}, "the filter 'rank' is 'x'; valid is a whole number from 0 on, or -1 for none."),
        ({"rank": ["٣"]}, "the filter 'rank' is '٣'"),
        ({"level": ["ERROR"]}, "the filter 'level' is 'ERROR'; valid are normal, second, first."),
        ({"level": ["first", ""]}, "the filter 'level' is ''"),
        ({"kind": ["error"]}, "the filter 'kind' is 'error'; valid are anomaly, follower, problem, replay, "),
        ({"limit": ["0"]}, "the filter 'limit' is '0'; valid is a whole number from 1 to 1000."),
        ({"limit": ["1001"]}, "from 1 to 1000"),
        ({"limit": ["9" * 5000]}, "from 1 to 1000"),
        ({"limit": ["1", "2"]}, "the filter 'limit' is given 2 times; valid is once."),
    ],
)
def test_a_wrong_filter_is_refused_in_one_sentence(query, said):
    with pytest.raises(QueryError) as caught:
        steps(**query)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")


@given(st.dictionaries(st.sampled_from(FILTERS), st.lists(st.text(), min_size=1, max_size=2)))
def test_any_text_is_a_filter_or_refused(query):
    with contextlib.suppress(QueryError):
        assert len(newest_first(EVENTS, query)) <= len(EVENTS)
