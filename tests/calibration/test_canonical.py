"""One value, one encoding; anything but ASCII JSON is refused by name."""

import pytest

from calibration import canonical
from calibration.errors import BudgetMismatch


def test_keys_are_sorted_and_floats_come_back() -> None:
    octets = canonical.encoded({"b": 0.1 + 0.2, "a": "é"})
    assert octets == b'{"a":"\\u00e9","b":0.30000000000000004}'
    assert canonical.decoded(octets, "budget", BudgetMismatch) == {"a": "é", "b": 0.1 + 0.2}


@pytest.mark.parametrize("octets", [b"{", b"\xff{}", "{}é".encode(), b"[" * 100_000])
def test_other_bytes_are_refused_by_name(octets: bytes) -> None:
    with pytest.raises(BudgetMismatch, match="the budget is not ASCII JSON"):
        canonical.decoded(octets, "budget", BudgetMismatch)
