from dataclasses import replace

import pytest

from tests.support.refusals import refused
from tests.support.simulator import Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Collecting, CoordinatorPhase, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Opening, Upload
from veilsum.protocol.shelf import MemoryShelf, Trees


@pytest.fixture
def federation() -> Federation:
    """All five members have made their uploads; the coordinator has received nothing yet."""
    federation = Federation(5)
    federation.begin()
    start = federation.phase
    assert isinstance(federation.run_until(Checking), Checking)
    federation.phase = start
    return federation


def collecting(federation: Federation) -> Collecting:
    assert isinstance(federation.phase, Collecting)
    return federation.phase


def upload_of(federation: Federation, member: str) -> Upload:
    (upload,) = federation.phases[member].messages_to_resend()
    assert isinstance(upload, Upload)
    return upload


def announced(federation: Federation, *members: str) -> Collecting:
    phase: CoordinatorPhase = collecting(federation)
    for member in members:
        phase = phase.receive(upload_of(federation, member), federation.now_s)
    assert isinstance(phase, Collecting)
    return phase


def stored(federation: Federation, phase: CoordinatorPhase, member: str) -> CoordinatorPhase:
    for index in range(2):
        assert isinstance(phase, Collecting)
        phase = phase.chunk_stored(member, index, federation.now_s)
    return phase


def whole(federation: Federation, *members: str) -> CoordinatorPhase:
    phase: CoordinatorPhase = announced(federation, *members)
    for member in members:
        phase = stored(federation, phase, member)
    return phase


def test_members_are_asked_until_their_upload_is_whole(federation: Federation) -> None:
    phase = announced(federation, "member-0", "member-1")
    stored_one = of(Collecting, stored(federation, phase, "member-0"))
    assert stored_one.request_for("member-0") is None
    assert isinstance(stored_one.request_for("member-1"), Opening)
    assert stored_one.waiting_for() == federation.ids[1:]
    assert stored_one.request_for("eve") is None


def test_missing_chunks_are_told(federation: Federation) -> None:
    phase = announced(federation, "member-0")
    assert phase.missing_chunks("member-0") == (0, 1)
    after = of(Collecting, phase.chunk_stored("member-0", 1, federation.now_s))
    assert after.missing_chunks("member-0") == (0,)
    assert not after.has_upload("member-0")
    again = of(Collecting, after.chunk_stored("member-0", 1, federation.now_s))
    assert again.stored == after.stored


@pytest.mark.parametrize(
    ("member", "index"), [("member-0", -1), ("member-0", 2), ("member-1", 0), ("eve", 0)]
)
def test_a_chunk_that_nobody_announced_is_not_counted(
    federation: Federation, member: str, index: int
) -> None:
    phase = announced(federation, "member-0")
    with refused("chunk-unknown", member):
        phase.chunk_stored(member, index, federation.now_s)


def test_the_last_chunk_of_the_last_member_closes_the_phase(federation: Federation) -> None:
    assert isinstance(whole(federation, *federation.ids[:4]), Collecting)
    checking = of(Checking, whole(federation, *federation.ids))
    assert tuple(checking.uploads) == federation.ids


def test_a_partial_upload_is_not_counted(federation: Federation) -> None:
    phase = of(Collecting, whole(federation, *federation.ids[:4]))
    partial = of(Collecting, phase.receive(upload_of(federation, "member-4"), federation.now_s))
    partial_ = partial.chunk_stored("member-4", 0, federation.now_s)
    checking = of(Checking, partial_.pass_deadline(federation.now_s))
    assert tuple(checking.uploads) == federation.ids[:4]


@pytest.mark.parametrize("begun", [0, 2])
def test_too_few_uploads_void_the_attempt_and_those_begun_are_told(
    federation: Federation, begun: int
) -> None:
    phase: CoordinatorPhase = whole(federation, *federation.ids[:3])
    for member in federation.ids[3 : 3 + begun]:
        phase = phase.receive(upload_of(federation, member), federation.now_s)
    fault = of(Voiding, phase.pass_deadline(federation.now_s)).fault
    assert (fault.cause, fault.parties) == (Cause.SURVIVORS_TOO_FEW, federation.ids[3:])
    assert ("2 more begun" in fault.detail, "windows.upload" in fault.detail) == (bool(begun), bool(begun))


def test_an_announcement_is_on_the_shelf_before_it_is_admitted(federation: Federation) -> None:
    kept: list[str] = []

    class Noting(MemoryShelf):
        def store_announcement(self, upload: Upload, trees: Trees) -> None:
            kept.append(upload.header.member)
            super().store_announcement(upload, trees)

    shelf = Noting()
    phase = Collecting.begin(federation.phase.attempt, federation.now_s, shelf=shelf)
    upload = upload_of(federation, "member-2")
    after = phase.receive(upload, federation.now_s)
    assert kept == ["member-2"]
    assert after.receive(upload, federation.now_s) is after
    with pytest.raises(PeerFault):
        after.receive(replace(upload, boxes=upload.boxes[1:]), federation.now_s)
    assert kept == ["member-2"]
    assert after.setting.shelf is shelf
