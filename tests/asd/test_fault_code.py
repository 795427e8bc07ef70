"""Fault codes: what the driver says by eight hex digits."""

import pytest

from asd.fault_code import CHECK_FAIL, COMPUTING_HIGH, COMPUTING_LOW, FaultCode, decode, is_code


@pytest.mark.parametrize(
    ("code", "decoded"),
    [
        (CHECK_FAIL, ("SoC", "Check Sensor", "check fail", "minor", "SeparateNPU")),
        (COMPUTING_HIGH, ("SoC", "Check Sensor", "hardware computing check, high risk", "", "SeparateNPU")),
        (COMPUTING_LOW, ("SoC", "Check Sensor", "hardware computing check, low risk", "", "SubHealthFault")),
    ],
)
def test_the_codes_of_the_check_are_known(code, decoded):
    assert decode(code) == FaultCode(*decoded)


def test_the_check_fail_is_the_number_the_vendor_lists():
    assert int(CHECK_FAIL, 16) == 2155973632


@pytest.mark.parametrize(
    "code", ["4C4BA00C", "A819320F", "020001002", "80818c00", "", "8081", "80818C00\n", "\uff180818C00"]
)
def test_what_is_not_listed_says_nothing(code):
    assert decode(code) == ("", "", "", "", "")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("80818C00", True),
        ("00000000", True),
        ("FFFFFFFF", True),
        ("80818c00", False),
        ("80818C0", False),
        ("80818C000", False),
        ("0x80818C", False),
        ("80818C00\n", False),
        (" 80818C0", False),
        ("", False),
        ("\uff180818C00", False),
    ],
)
def test_a_code_is_eight_upper_case_hex_digits(text, valid):
    assert is_code(text) is valid
