"""The sum's file, in memory or on disk."""

import mmap
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load

from calibration.errors import CalibrationError, NoRecords, SumCheckFailed
from protocol.causes import Cause
from protocol.errors import PeerFault
from service import solving
from service.solving import SumsFile


@pytest.mark.parametrize("spooled", [1 << 30, 1 << 12])
def test_a_sum_is_its_pieces_wherever_it_waits(spooled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "SPOOLED_BYTES", spooled)
    whole = np.random.default_rng(0).integers(-(2**60), 2**60, 5_000)
    file = SumsFile(len(whole))
    for start in reversed(range(0, len(whole), 700)):
        file.take(start, whole[start : start + 700])
    file.rest()
    np.testing.assert_array_equal(load(bytes(file.content))["sum"], whole)
    np.testing.assert_array_equal(file.total, whole)
    assert file.sha256() == sha256(file.content).hexdigest()
    assert isinstance(file.content, mmap.mmap) == (spooled == 1 << 12)


def test_where_the_disk_has_no_room_for_it_an_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        SumsFile(solving.SPOOLED_BYTES)


def test_a_sum_that_no_library_decomposes_ends_its_round() -> None:
    """It would be tried again, and fail again, for ever."""

    class Asked:
        def gathering(self, _: object) -> None: ...

        def gathered(self, *_: object) -> None: ...

        def answer(self, *_: object) -> None:
            raise np.linalg.LinAlgError("Eigenvalues did not converge")

    asked, summed = cast("Any", Asked()), cast("Any", SimpleNamespace(lattice=None))
    with pytest.raises(PeerFault, match="no head follows: LinAlgError") as refused:
        solving.solve(asked, [], summed)
    assert refused.value.cause is Cause.SUM_CHECK_FAILED


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SumCheckFailed("class 3 reaches 12 with 10 records", identity="trace"), "identity broken: trace"),
        (NoRecords("7 records of 7 classes leave no covariance"), "no head follows: NoRecords"),
    ],
)
def test_what_anyone_may_read_of_a_failed_sum_holds_none_of_its_numbers(
    error: CalibrationError, said: str
) -> None:
    def failing(*_: object) -> None:
        raise error

    asked = cast("Any", SimpleNamespace(gathering=lambda _: None, gathered=failing, answer=None))
    with pytest.raises(PeerFault) as refused:
        solving.solve(asked, [], cast("Any", SimpleNamespace(lattice=None)))
    assert refused.value.detail == said
