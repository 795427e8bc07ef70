"""Whose fault it was, by what each rank tells of itself and of the means that all of them should see alike."""

import pytest

from asd.diagnosis.attribution import Seen, pack_seen
from asd.diagnosis.groups import everybody
from asd.operators.ranks.attribution import attribution_of

CALM, LOUD = Seen(0, 1.0, broken=False), Seen(0, 1e9, broken=True)


class Told:
    """An exchange in which the other ranks have said what they will say."""

    def __init__(self, own, means):
        self.rank, self.size, self._messages = 0, len(own), []
        self.groups, self.near = everybody(self.size, 0, ""), self
        for alone, mean in zip(own, means, strict=True):
            first, second = pack_seen({"w": alone}), pack_seen({"averaged.w": mean})
            self._messages.append(len(first).to_bytes(4, "little") + first + second)

    def gather(self, message):
        assert message == self._messages[0]  # this is rank 0
        return self._messages


@pytest.mark.parametrize(
    ("own", "means", "ranks"),
    [([CALM, LOUD, CALM], [LOUD, LOUD, LOUD], (1,)), ([CALM, CALM, CALM], [CALM, CALM, LOUD], (2,))],
    ids=["one rank's own gradient", "one rank's copy of the mean"],
)
def test_a_mean_is_blamed_only_on_a_rank_whose_copy_alone_is_bad(own, means, ranks):
    assert attribution_of(Told(own, means), {"w": own[0]}, {"averaged.w": means[0]}).ranks == ranks
