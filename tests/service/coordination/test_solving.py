"""The sum's file, in memory or on disk, and what is reported of a sum without a result."""

import mmap
from hashlib import sha256

import numpy as np
import pytest
from safetensors.numpy import load

from service.coordination import solving
from service.coordination.solving import SumsFile
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.calibration.errors import SumCheckFailed
from veilsum.study import answers


@pytest.mark.parametrize("spooled", [1 << 30, 1 << 12])
def test_a_sum_is_its_pieces_wherever_it_waits(spooled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "SUM_ON_DISK_BYTES", spooled)
    whole = np.random.default_rng(0).integers(-(2**60), 2**60, 5_000)
    starts = reversed(range(0, len(whole), 700))
    file = SumsFile(len(whole), ((start, whole[start : start + 700]) for start in starts))
    np.testing.assert_array_equal(load(bytes(file.content))["sum"], whole)
    np.testing.assert_array_equal(file.total, whole)
    assert file.hash_content() == sha256(file.content).hexdigest()
    assert isinstance(file.content, mmap.mmap) == (spooled == 1 << 12)


def test_where_the_disk_has_no_room_for_it_an_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        SumsFile(solving.SUM_ON_DISK_BYTES, ())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SumCheckFailed("class 3 reaches 12 with 10 records", identity="trace"), "identity broken: trace"),
        (np.linalg.LinAlgError("Eigenvalues of 12 did not converge"), "no head follows: LinAlgError"),
    ],
)
async def test_what_anyone_may_read_of_a_failed_sum_holds_none_of_its_numbers(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """And the round ends. Otherwise it would be tried again and fail for ever."""

    def failing(*_: object, **__: object) -> None:
        raise error

    where = "_read_exact" if isinstance(error, SumCheckFailed) else "solve_exact"
    monkeypatch.setattr(answers, where, failing)
    round_id = await formed.open_round(server)
    view = await formed.play(server, round_id)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "sum-check-failed")
    assert view["fault"]["detail"] == said
    for path in ("result", "result/weights", "result/sums"):
        assert refusal(await server.client.get(f"/v1/rounds/{round_id}/{path}")) == (409, "wrong-phase")
    assert server.coordinator.blobs.list_names("results") == ()
