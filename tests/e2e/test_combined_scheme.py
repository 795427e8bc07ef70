"""The vendor's combined scheme over two ranks: a strike of one switches the checksum on for both."""

import json

import pytest


@pytest.mark.slow
def test_a_strike_of_one_rank_starts_the_checksum_on_both_and_it_names_the_rank_whose_product_is_wrong(runner):
    done, logs = runner.ranks("combined_parallel.py")
    assert done.code == 0, (done, logs)
    first, second = (json.loads(log.partition("END ")[2].splitlines()[0]) for log in logs)
    # Asked every ten steps: on from the end of step 20 to that of step 30.
    assert first["checked"] == second["checked"] == list(range(21, 31))
    assert first["events"] == []
    strikes = [event for event in second["events"] if event[1] == "combined"]
    assert [event[:3] for event in strikes] == [[15, "combined", "WARNING"]]
    assert strikes[0][3].startswith("gradient.")
    assert [event for event in second["events"] if event[1] == "checksum"] == [
        [step, "checksum", "ERROR", "first.checksum"] for step in range(21, 31)
    ]
    for log in logs:
        assert "Feature value detection strikes out on rank 1, CheckSum will be enabled globally." in log
        assert "Global CheckSum result is 1" in log
    assert ["CheckSum detects MatMul error on rank 1" in log for log in logs] == [False, True]
