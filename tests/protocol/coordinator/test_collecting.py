import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Collecting, CoordinatorPhase, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Opening, Upload
from veilsum.protocol.shelf import MemoryShelf, Trees

Resign = Callable[..., Upload]


@pytest.fixture
def federation() -> Federation:
    """All of five members have made their uploads; the coordinator has seen nothing yet."""
    federation = Federation(5)
    federation.begin()
    start = federation.phase
    checking = federation.run_until(Checking)
    assert isinstance(checking, Checking)
    federation.phase = start
    return federation


def collecting(federation: Federation) -> Collecting:
    assert isinstance(federation.phase, Collecting)
    return federation.phase


def upload_of(federation: Federation, member: str) -> Upload:
    (upload,) = federation.phases[member].outbox()
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
    stored_one = stored(federation, phase, "member-0")
    assert isinstance(stored_one, Collecting)
    assert stored_one.request_for("member-0") is None
    assert isinstance(stored_one.request_for("member-1"), Opening)
    assert stored_one.waiting_for() == federation.ids[1:]
    assert stored_one.request_for("eve") is None


def test_missing_chunks_are_told(federation: Federation) -> None:
    phase = announced(federation, "member-0")
    assert phase.missing_chunks("member-0") == (0, 1)
    after = phase.chunk_stored("member-0", 1, federation.now_s)
    assert isinstance(after, Collecting)
    assert after.missing_chunks("member-0") == (0,)
    assert not after.whole("member-0")
    again = after.chunk_stored("member-0", 1, federation.now_s)
    assert isinstance(again, Collecting)
    assert again.stored == after.stored


def test_the_last_chunk_of_the_last_member_closes_the_phase(federation: Federation) -> None:
    assert isinstance(whole(federation, *federation.ids[:4]), Collecting)
    checking = whole(federation, *federation.ids)
    assert isinstance(checking, Checking)
    assert tuple(checking.uploads) == federation.ids


def test_a_partial_upload_is_not_counted(federation: Federation) -> None:
    phase = whole(federation, *federation.ids[:4])
    assert isinstance(phase, Collecting)
    partial = phase.receive(upload_of(federation, "member-4"), federation.now_s)
    assert isinstance(partial, Collecting)
    partial_ = partial.chunk_stored("member-4", 0, federation.now_s)
    checking = partial_.expire(federation.now_s)
    assert isinstance(checking, Checking)
    assert tuple(checking.uploads) == federation.ids[:4]


# Chunks


def check(phase: Collecting, federation: Federation, index: int, data: bytes | None = None) -> None:
    data = federation.spool["member-0", index] if data is None else data
    phase.check_chunk("member-0", index, hashlib.sha256(data).digest(), data)


def test_the_announced_chunks_pass_in_any_order(federation: Federation) -> None:
    phase = announced(federation, "member-0")
    for index in (1, 0, 1):
        check(phase, federation, index)


def test_a_chunk_before_its_announcement_is_refused(federation: Federation) -> None:
    phase = collecting(federation)
    for act in (
        lambda: check(phase, federation, 0),
        lambda: phase.chunk_stored("member-0", 0, 0.0),
        lambda: phase.missing_chunks("member-0"),
    ):
        with pytest.raises(
            PeerFault, match=r"^chunk-unknown: member-0 has announced no upload.*\[member-0\]$"
        ):
            act()


@pytest.mark.parametrize("index", [-1, 2, 3, 2**64])
def test_a_chunk_outside_the_upload_is_refused(federation: Federation, index: int) -> None:
    phase = announced(federation, "member-0")
    for act in (
        lambda: check(phase, federation, index, b""),
        lambda: phase.chunk_stored("member-0", index, 0.0),
    ):
        with pytest.raises(
            PeerFault, match=rf"^chunk-unknown: chunk {index}: .* chunks 0 to 1 \[member-0\]$"
        ):
            act()


def test_a_strangers_chunk_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^chunk-unknown: .*\[eve\]$"):
        announced(federation, "member-0").check_chunk("eve", 0, bytes(32), b"")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[::-1],
    ],
    ids=["empty", "truncated", "longer", "a bit changed", "reversed"],
)
def test_other_bytes_than_were_announced_are_refused(
    federation: Federation, damage: Callable[[bytes], bytes]
) -> None:
    phase = announced(federation, "member-0")
    with pytest.raises(PeerFault, match=r"^chunk-mismatch: chunk 1 has .*\[member-0\]$"):
        check(phase, federation, 1, damage(federation.spool["member-0", 1]))


def test_another_chunk_of_the_same_upload_is_refused(federation: Federation) -> None:
    phase = announced(federation, "member-0")
    with pytest.raises(PeerFault, match=r"^chunk-mismatch:"):
        check(phase, federation, 1, federation.spool["member-0", 0])


def test_an_announced_chunk_of_another_length_is_refused(federation: Federation, resign: Resign) -> None:
    short = hashlib.sha256(b"short").digest()
    upload = upload_of(federation, "member-0")
    cheat = resign(federation, upload, chunk_digests=(short, upload.chunk_digests[1]))
    phase = collecting(federation).receive(cheat, federation.now_s)
    assert isinstance(phase, Collecting)
    with pytest.raises(PeerFault, match=r"^chunk-mismatch: chunk 0 has 5 bytes of 256"):
        phase.check_chunk("member-0", 0, short, b"short")


# Announcements


def refused(federation: Federation, upload: Upload) -> str:
    with pytest.raises(PeerFault) as caught:
        collecting(federation).receive(upload, federation.now_s)
    return str(caught.value)


def test_an_upload_of_another_context_is_refused(federation: Federation, resign: Resign) -> None:
    upload = resign(federation, upload_of(federation, "member-0"), context=bytes(32))
    assert refused(federation, upload).startswith("wrong-context: member-0")


def test_a_strangers_upload_is_refused(federation: Federation) -> None:
    upload = upload_of(federation, "member-0")
    assert refused(federation, replace(upload, header=replace(upload.header, member="sybil"))).startswith(
        "unknown-member: sybil"
    )


def test_an_upload_in_another_members_name_is_refused(federation: Federation) -> None:
    upload = upload_of(federation, "member-0")
    forged = replace(upload, header=replace(upload.header, member="member-1"))
    assert refused(federation, forged) == "bad-signature: member-1's signature does not verify [member-1]"


SHAPES: dict[str, Callable[[Upload], dict[str, Any]]] = {
    "a chunk too few": lambda u: {"chunk_digests": u.chunk_digests[:1]},
    "a chunk too many": lambda u: {"chunk_digests": (*u.chunk_digests, bytes(32))},
    "a commitment too few": lambda u: {"secret_commitments": u.secret_commitments[1:]},
    "a commitment too many": lambda u: {"secret_commitments": (*u.secret_commitments, bytes(16))},
    "a row too few": lambda u: {"share_rows": u.share_rows[1:]},
    "a row too many": lambda u: {"share_rows": (*u.share_rows, u.share_rows[0])},
    "a short row": lambda u: {"share_rows": (u.share_rows[0][:-16], *u.share_rows[1:])},
    "a long row": lambda u: {"share_rows": (u.share_rows[0] + bytes(16), *u.share_rows[1:])},
    "a box too few": lambda u: {"boxes": u.boxes[:-1]},
    "a box too many": lambda u: {"boxes": (*u.boxes, u.boxes[1])},
    "a short box": lambda u: {"boxes": (*u.boxes[:-1], u.boxes[-1][:-1])},
    "a long box": lambda u: {"boxes": (*u.boxes[:-1], u.boxes[-1] + b"\0")},
    "a box for itself": lambda u: {"boxes": (u.boxes[1], *u.boxes[1:])},
    "no box for another": lambda u: {"boxes": (b"", b"", *u.boxes[2:])},
}


@pytest.mark.parametrize("how", SHAPES)
def test_an_upload_of_another_shape_is_refused_though_signed(
    federation: Federation, resign: Resign, how: str
) -> None:
    upload = upload_of(federation, "member-0")
    cheat = resign(federation, upload, **SHAPES[how](upload))
    assert refused(federation, cheat) == "upload-misshapen: member-0's upload misses its shape [member-0]"


@pytest.mark.parametrize("root", ["chunk_root", "commitment_root", "box_root"])
def test_a_signed_root_that_is_not_of_what_is_carried_is_refused(
    federation: Federation, resign: Resign, root: str
) -> None:
    cheat = resign(federation, upload_of(federation, "member-0"), **{root: bytes(32)})
    assert refused(federation, cheat) == "upload-misshapen: member-0's upload misses its roots [member-0]"


def test_the_same_upload_again_changes_nothing(federation: Federation) -> None:
    phase = announced(federation, "member-0").chunk_stored("member-0", 0, federation.now_s)
    assert phase.receive(upload_of(federation, "member-0"), federation.now_s) is phase


def test_a_second_upload_is_a_conflict(federation: Federation, resign: Resign) -> None:
    phase = announced(federation, "member-0")
    other = resign(federation, upload_of(federation, "member-0"), salt=b"R" * 32)
    with pytest.raises(
        PeerFault, match=r"^upload-conflict: member-0 has sent another upload before \[member-0\]$"
    ):
        phase.receive(other, federation.now_s)


# The deadline


def test_too_few_whole_uploads_void_the_attempt_and_name_the_missing(federation: Federation) -> None:
    phase = whole(federation, "member-0", "member-1", "member-3").expire(federation.now_s)
    assert isinstance(phase, Voiding)
    assert phase.fault.cause is Cause.SURVIVORS_TOO_FEW
    assert phase.fault.parties == ("member-2", "member-4")
    assert phase.fault.detail == "3 uploads are whole, 4 are needed"


def test_an_edge_on_which_its_ends_disagree_is_settled_after_the_receipts(
    federation: Federation, resign: Resign
) -> None:
    upload = upload_of(federation, "member-0")
    cheat = resign(federation, upload, secret_commitments=(*upload.secret_commitments[:4], bytes(16)))
    phase: CoordinatorPhase = collecting(federation).receive(cheat, federation.now_s)
    for member in federation.ids[1:]:
        phase = phase.receive(upload_of(federation, member), federation.now_s)
    for member in federation.ids:
        phase = stored(federation, phase, member)
    assert isinstance(phase, Checking)
    assert tuple(phase.uploads) == federation.ids


def test_an_announcement_is_on_the_shelf_before_it_is_admitted(federation: Federation) -> None:
    kept: list[str] = []

    class Noting(MemoryShelf):
        def put(self, upload: Upload, trees: Trees) -> None:
            kept.append(upload.header.member)
            super().put(upload, trees)

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
