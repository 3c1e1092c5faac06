import re

from veilsum.protocol.causes import Cause


def test_a_cause_is_its_kebab_case_name() -> None:
    for cause in Cause:
        assert cause.value == cause.name.lower().replace("_", "-") == str(cause)
        assert re.fullmatch(r"[a-z0-9-]{1,64}", cause.value)
        assert Cause(cause.value) is cause


def test_each_has_a_summary_of_its_own() -> None:
    assert len({cause.summary for cause in Cause}) == len(Cause)
    assert all(cause.summary for cause in Cause)


def test_none_is_no_cause() -> None:
    # a certificate for survivors says "none" where a reason for VOID would stand
    assert "none" not in {cause.value for cause in Cause}
