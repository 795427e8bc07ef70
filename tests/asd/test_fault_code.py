"""Fault codes: what the driver says by eight hex digits."""

import pytest

from asd.fault_code import CHECK_FAIL, COMPUTING_HIGH, COMPUTING_LOW, decode, is_code


def test_the_codes_of_the_check_are_known_and_the_check_fail_is_the_number_the_vendor_lists():
    assert [decode(code).handling for code in (CHECK_FAIL, COMPUTING_HIGH)] == ["SeparateNPU"] * 2
    assert decode(COMPUTING_LOW).handling == "SubHealthFault"
    assert int(CHECK_FAIL, 16) == 2155973632


@pytest.mark.parametrize("code", ["4C4BA00C", "A819320F", "00000000", "FFFFFFFF"])
def test_what_is_not_listed_says_nothing(code):
    assert (is_code(code), decode(code)) == (True, ("", "", "", "", ""))


@pytest.mark.parametrize("text", ["80818c00", "80818C0", "80818C000", "0x80818C", "80818C00\n", "", "\uff180818C00"])
def test_a_code_is_eight_upper_case_hex_digits(text):
    assert (is_code(text), decode(text)) == (False, ("", "", "", "", ""))
