"""What `/events` may be asked for: a wrong question is refused in one sentence."""

import pytest

from asd.exporters.http.event_query import QueryError, newest_first
from tests.support.events import event_maker

event = event_maker()


EVENTS = [event(step, time=1767225600.0 + 3600 * min(step, 3)) for step in (1, 2, 3, 4)]  # the last two at one time


def steps(**query):
    return [each.step for each in newest_first(EVENTS, query)]


def test_without_a_limit_all_come_and_of_two_at_one_time_the_later_first():
    assert steps() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"rank": ["0"]}, "the parameter 'rank' is not known; valid is limit."),
        ({"limit": ["0"]}, "the parameter 'limit' is '0'; valid is a whole number from 1 to 1000."),
        ({"limit": ["1001"]}, "from 1 to 1000"),
        ({"limit": ["٣"]}, "from 1 to 1000"),
        ({"limit": ["9" * 5000]}, "from 1 to 1000"),
        ({"limit": ["1", "2"]}, "the parameter 'limit' is given 2 times; valid is once."),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_sentence(query, said):
    with pytest.raises(QueryError) as caught:
        steps(**query)
    assert said in str(caught.value)
    assert str(caught.value).endswith(".")
