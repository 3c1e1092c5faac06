from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.coordinator import Freezing
from protocol.errors import PeerFault
from protocol.member import Checked, MemberPhase, Voted
from protocol.messages import (
    Deliveries,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Survivor,
    Upload,
    UploadHeader,
    Vote,
    survivors_hash,
)
from protocol.simulator import After, Federation

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]


@pytest.fixture
def federation() -> Federation:
    """Six members, of whom member-5 has not uploaded, wait for the proposal."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.begin(terms=federation.terms(8))
    federation.run_until(Freezing)
    return federation


@pytest.fixture
def freeze(federation: Federation) -> Freeze:
    request = federation.phase.request_for("member-0")
    assert isinstance(request, Freeze)
    return request


def refusal(answer: Answer, federation: Federation, freeze: Freeze) -> str:
    """Why member-0 signs nothing; it stays as it was."""
    phase, replies = answer(federation, "member-0", freeze)
    assert phase is federation.phases["member-0"]
    (reply,) = replies
    assert isinstance(reply, Refusal)
    reply.verify(federation.keys["member-0"].public, "member-0")
    assert reply.context == freeze.context
    return reply.cause


def test_a_decryptor_signs_the_survivors_it_checked(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    phase, replies = answer(federation, "member-0", freeze)
    assert isinstance(phase, Voted)
    assert replies == phase.outbox() == (phase.signed,)
    assert isinstance(phase.signed, Vote)
    survivors = tuple(Survivor.of(header) for header in freeze.headers)
    assert phase.signed.outcome == survivors_hash(freeze.context, survivors)
    phase.signed.verify(federation.keys["member-0"].public, "member-0")


def test_a_smaller_set_of_n_min_is_signed_too(federation: Federation, freeze: Freeze, answer: Answer) -> None:
    phase, _ = answer(federation, "member-0", replace(freeze, headers=freeze.headers[:4]))
    assert isinstance(phase, Voted)


def test_a_decryptor_signs_a_set_without_itself(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    phase, _ = answer(federation, "member-0", replace(freeze, headers=freeze.headers[1:]))
    assert isinstance(phase, Voted)


def test_a_set_shrunk_below_n_min_is_refused(federation: Federation, freeze: Freeze, answer: Answer) -> None:
    for count in range(4):
        shrunk = replace(freeze, headers=freeze.headers[:count])
        assert refusal(answer, federation, shrunk) == "survivors-too-few"


def test_a_set_padded_with_a_member_who_did_not_upload_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    last = freeze.headers[-1]
    values = {name: getattr(last, name) for name in vars(last) if name not in {"signature", "member"}}
    # signed by the absent member itself, as a colluder would
    padding = UploadHeader.make(federation.keys["member-5"], member="member-5", **values)
    padded = replace(freeze, headers=(*freeze.headers, padding))
    assert refusal(answer, federation, padded) == "survivors-invalid"


def test_a_set_padded_with_a_stranger_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    sybil = replace(freeze.headers[0], member="sybil")
    assert refusal(answer, federation, replace(freeze, headers=(*freeze.headers, sybil))) == (
        "survivors-invalid"
    )


def test_a_set_out_of_order_or_with_repeats_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    headers = freeze.headers
    for wrong in (headers[::-1], (headers[0], *headers), (*headers[:4], headers[3])):
        assert refusal(answer, federation, replace(freeze, headers=wrong)) == "survivors-invalid"


def test_another_upload_of_ones_own_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer, resign: Callable[..., Upload]
) -> None:
    phase = federation.phases["member-0"]
    assert isinstance(phase, Checked)
    other = resign(federation, phase.uploads[0], records=b"R" * 8).header
    shown = replace(freeze, headers=(other, *freeze.headers[1:]))
    assert refusal(answer, federation, shown) == "own-upload-changed"


def test_another_upload_than_the_one_whose_box_was_shown_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer, resign: Callable[..., Upload]
) -> None:
    # the dealer signs two uploads, and decryptors are shown different ones
    phase = federation.phases["member-3"]
    assert isinstance(phase, Checked)
    other = resign(federation, phase.uploads[0], salt=bytes(32)).header
    headers = (*freeze.headers[:3], other, *freeze.headers[4:])
    assert refusal(answer, federation, replace(freeze, headers=headers)) == "survivors-invalid"


def test_a_dealer_whose_box_was_refused_is_no_survivor_here(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    phase = federation.phases["member-0"]
    assert isinstance(phase, Checked)
    complained = replace(phase.receipt, complaints=("member-2",))
    federation.phases["member-0"] = replace(
        phase, opened=tuple(d for d in phase.opened if d.member != "member-2"), receipt=complained
    )
    assert refusal(answer, federation, freeze) == "box-refused"
    without = replace(freeze, headers=tuple(h for h in freeze.headers if h.member != "member-2"))
    voted, _ = answer(federation, "member-0", without)
    assert isinstance(voted, Voted)


def test_a_proposal_of_another_context_is_refused(
    federation: Federation, freeze: Freeze, answer: Answer
) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, "member-0", replace(freeze, context=bytes(32)))


def test_deliveries_again_are_answered_by_the_same_receipt(federation: Federation, answer: Answer) -> None:
    phase = federation.phases["member-0"]
    assert isinstance(phase, Checked)
    again, replies = answer(federation, "member-0", Deliveries(phase.attempt.context, ()))
    assert again is phase
    assert replies == (phase.receipt,)
    assert isinstance(replies[0], Receipt)
    with pytest.raises(PeerFault, match=r"^wrong-context:"):
        answer(federation, "member-0", Deliveries(bytes(32), ()))
