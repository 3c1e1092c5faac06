"""An auditor replays a transcript: who kept the rules is not named, and who broke one is (protocol §11)."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import veilsum.protocol.replay
from tests.protocol.transcripts import (
    Entries,
    bad_share,
    doctored,
    equivocating,
    false_edge,
    find,
    named,
    refused_by_two,
    verdict,
)
from tests.support.forging import again, answering, false_dealers, other_secrets, redeal, resign, swallowing
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import ClosedByAdmin, Failed, Recovered, Voided, VoidedByErasure
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Erased,
    Evictions,
    Lost,
    Message,
    Receipt,
    Refusal,
    Reveal,
    RevealSummary,
    Roster,
    Survivor,
    Upload,
    Vote,
    parse,
)
from veilsum.protocol.proposal import disputes_among
from veilsum.protocol.replay import Finding, Standing, follows, replay
from veilsum.protocol.transcript import Transcript

COORDINATOR = ("coordinator",)


def played(members: int = 5, **settings_: Any) -> Federation:
    federation = Federation(members, **settings_)
    federation.run_round()
    return federation


# Everybody kept the rules


@pytest.mark.parametrize(
    ("settings_", "ending"),
    [
        ({}, Recovered),
        ({"drop": {1: After.ANNOUNCEMENT, 3: After.UPLOAD}}, Recovered),
        ({"drop": {0: After.RECEIPT}}, Recovered),
        ({"decryptors": (0, 1, 2, 3)}, Recovered),
        ({"drop": {0: After.VOTE, 1: After.VOTE, 2: After.VOTE}}, Failed),
        ({"drop": {0: After.RECEIPT, 1: After.RECEIPT, 2: After.RECEIPT}}, VoidedByErasure),
        ({"drop": {0: After.OPENING, 1: After.OPENING, 2: After.OPENING, 3: After.OPENING}}, ClosedByAdmin),
    ],
)
def test_an_honest_round_is_kept_however_it_ends(settings_: dict[str, Any], ending: type) -> None:
    federation = played(8, **settings_)
    assert isinstance(federation.phase, ending)
    found = verdict(federation)
    assert found.kept
    assert found.findings == ()
    assert found.closing == federation.ending


def test_an_honest_void_and_its_retry_are_kept() -> None:
    federation = Federation(5)
    federation.tamper = swallowing(Upload, "member-3", "member-4")
    assert isinstance(federation.run_round().phase, Voided)
    found = verdict(federation)
    assert found.findings == ()
    assert found.certificate is not None
    assert found.certificate.void
    federation.tamper = lambda _sender, message: message
    assert isinstance(federation.run_round().phase, Recovered)
    assert verdict(federation).findings == ()
    assert len(verdict(federation).attempt.opening.links) == 1


def test_a_proposal_that_some_refuse_ends_void_and_is_kept() -> None:
    federation = refused_by_two()
    found = verdict(federation)
    assert found.kept
    # Nobody can tell that it was the network: they refused for what the proposal noted does not show.
    assert named(found) == {
        ((member, "coordinator"), "survivors-too-few") for member in ("member-0", "member-1")
    }
    assert found.refusals == ()
    assert any(isinstance(message, Refusal) for message in federation.transcript.messages())


def test_a_second_refusal_by_one_member_is_the_coordinators_fault() -> None:
    """Each is judged anew: without end they would take whoever replays them as long."""
    federation = refused_by_two()

    def repeat(entries: Entries) -> None:
        index = find(entries, Refusal, "member-1")
        refusal = of(Refusal, parse(entries[index]))
        other = again(refusal, federation.keys["member-1"], cause="policy-refused")
        entries.insert(index + 1, other.to_bytes())

    found = doctored(federation, repeat)
    assert (COORDINATOR, "duplicate") in named(found)
    assert {parties for parties, cause in named(found) if cause != "survivors-too-few"} == {COORDINATOR}


def test_who_is_counted() -> None:
    federation = played(6, drop={2: After.ANNOUNCEMENT})
    found = verdict(federation)
    assert [found.counted(member) for member in federation.ids] == [True, True, False, True, True, True]
    assert not found.counted("nobody")
    gone = played(5, drop={0: After.RECEIPT, 1: After.RECEIPT})
    assert not verdict(gone).counted("member-3")


# A liar is named, and nobody else


def test_disputes_over_an_edge_name_both() -> None:
    federation = Federation(6, seed=3)
    federation.tamper = false_edge(federation, "member-2")
    federation.run_round()
    found = verdict(federation)
    assert named(found) == {
        (("member-2", "member-5"), "edge-disagreement"),
        # the cover left member-2 in, and the seed that it had not committed to became due
        (("member-2",), "dealer-inconsistent"),
        # its own state is of the upload that it did not send
        (("member-2", "coordinator"), "own-upload-changed"),
    }
    federation = Federation(6, seed=2)
    federation.tamper = false_edge(federation, "member-2")
    outcome = federation.run_round()
    assert "member-2" not in outcome.survivors
    assert verdict(federation).kept
    assert ["member-2" in each.parties for each in verdict(federation).disputes] == [True]
    assert [finding.dispute for finding in verdict(federation).findings] == [True]


def test_disputes_that_leave_too_few_are_found_without_a_proposal() -> None:
    federation = Federation(4)
    federation.tamper = false_edge(federation, "member-2")
    assert isinstance(federation.run_round().phase, Voided)
    assert named(verdict(federation)) == {(("member-2", "member-3"), "edge-disagreement")}


def test_evictions_name_their_dealers_once_each() -> None:
    federation = Federation(9)
    deal = {
        "member-7": lambda attempt: other_secrets(attempt, 0),
        "member-8": lambda attempt: other_secrets(attempt, 1),
    }
    false_dealers(federation, deal)
    federation.drop = {0: After.ANNOUNCEMENT}
    assert isinstance(federation.run_round().phase, Recovered)
    found = verdict(federation)
    assert named(found) == {
        (("member-7",), "dealer-inconsistent"),
        (("member-8",), "dealer-inconsistent"),
    }
    assert len(found.findings) == 2
    assert found.evicted == ("member-7", "member-8")
    assert not found.counted("member-8")
    assert found.counted("member-1")


def test_evictions_in_two_steps_name_each_dealer_once() -> None:
    """The second dealer is false only in a secret that the first one's eviction makes due."""
    federation = Federation(9)
    deal = {
        "member-7": lambda attempt: other_secrets(attempt, 0),
        "member-8": lambda attempt: other_secrets(attempt, 8),  # its edge with member-7
    }
    false_dealers(federation, deal)
    assert isinstance(federation.run_round().phase, Recovered)
    assert [type(m) for m in federation.transcript.messages()].count(Evictions) == 2
    found = verdict(federation)
    assert [finding.parties for finding in found.findings] == [("member-7",), ("member-8",)]


def test_more_false_dealers_than_may_collude_are_all_named() -> None:
    federation = Federation(5)
    false_dealers(
        federation,
        {member: lambda attempt: other_secrets(attempt, 0) for member in ("member-0", "member-1")},
    )
    assert isinstance(federation.run_round().phase, Failed)
    assert named(verdict(federation)) == {
        (("member-0",), "dealer-inconsistent"),
        (("member-1",), "dealer-inconsistent"),
    }


@pytest.mark.parametrize(
    ("form", "changes", "cause"),
    [
        (Upload, {"salt": bytes(32)}, "upload-conflict"),
        (Vote, {"outcome": bytes(32)}, "already-voted"),
        (Receipt, {"dealers": ("member-0", "member-2"), "complaints": ("member-3", "member-4")}, "conflict"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_who_signs_two_of_what_may_be_signed_once_is_named(
    form: type[Message], changes: dict[str, Any], cause: str
) -> None:
    federation = equivocating("member-1", form, **changes)
    assert isinstance(federation.run_round().phase, Recovered)
    assert named(verdict(federation)) == {(("member-1",), cause)}


def test_a_misshapen_reveal_proves_nothing_to_others() -> None:
    federation = Federation(5)
    federation.tamper = answering(federation, "member-1", Reveal, evicted=("member-2",))
    federation.run_round()
    assert verdict(federation).findings == ()


ERASED: dict[str, Any] = {"drop": {0: After.RECEIPT, 1: After.RECEIPT}}


def test_a_decryptor_that_revealed_and_denies_it_is_named() -> None:
    federation = Federation(6, drop=dict.fromkeys((0, 1, 2, 4), After.VOTE))
    federation.tamper = answering(federation, "member-3", Erased, revealed=NOTHING_REVEALED)
    federation.run_round()
    assert isinstance(federation.phase, ClosedByAdmin)
    assert named(verdict(federation)) == {(("member-3",), "conflict")}


def test_two_reports_name_their_decryptor() -> None:
    federation = equivocating("member-2", Erased, revealed=b"\x66" * 32)
    federation.drop = ERASED["drop"]
    federation.run_round()
    assert named(verdict(federation)) == {(("member-2",), "conflict")}


def test_a_report_of_nothing_goes_with_any_vote() -> None:
    federation = played(**ERASED)
    assert isinstance(federation.phase, VoidedByErasure)
    found = verdict(federation)
    assert found.findings == ()
    assert found.closing == federation.phase.closing
    assert (found.certificate, found.survivors) == (None, ())


def test_a_certificate_that_an_erasure_took_the_place_of_counts_nobody() -> None:
    federation = Federation(6, drop=dict.fromkeys(range(5), After.VOTE))
    federation.begin()
    federation.run_until()
    federation.drop = {}
    federation.run_until()
    federation.finish()
    assert isinstance(federation.phase, VoidedByErasure)
    found = verdict(federation)
    assert found.findings == ()
    assert found.standing("member-0") is Standing.UNCERTIFIED


# Nobody honest is ever named


Lie = Callable[[Federation, Any], Message | None]
LIES: dict[str, tuple[type[Message], Lie]] = {
    "a false edge": (Upload, lambda f, m: false_edge(f, m.header.member)(m.header.member, m)),
    "a box that misses its row": (
        Upload,
        lambda f, m: redeal(f, m, other_secrets(f.phase.attempt, 0), commit=False),
    ),
    "a false secret": (Upload, lambda f, m: redeal(f, m, other_secrets(f.phase.attempt, 0))),
    "boxes out of order": (Upload, lambda f, m: resign(f, m, boxes=m.boxes[::-1])),
    "a complaint": (
        Receipt,
        lambda f, m: again(m, f.keys[m.member], dealers=m.dealers[1:], complaints=m.dealers[:1]),
    ),
    "another vote": (Vote, lambda f, m: again(m, f.keys[m.member], outcome=b"\x66" * 32)),
    "another share": (Reveal, lambda f, m: bad_share(f, m.member)(m.member, m)),
    "another report": (Erased, lambda f, m: again(m, f.keys[m.member], revealed=NOTHING_REVEALED)),
    "silence": (Message, lambda _federation, _message: None),
}


def lying(federation: Federation, liar: str, how: str) -> None:
    """From now on this member lies in this way."""
    form, lie = LIES[how]
    federation.tamper = lambda sender, message: (
        lie(federation, message) if sender == liar and isinstance(message, form) else message
    )


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    members=st.integers(4, 8),
    liar=st.integers(0, 3),
    how=st.sampled_from(sorted(LIES)),
    drop=st.dictionaries(st.integers(4, 7), st.sampled_from(After), max_size=4),
)
def test_nobody_honest_is_ever_named(
    seed: int, members: int, liar: int, how: str, drop: dict[int, After]
) -> None:
    drop = {index: after for index, after in drop.items() if index < members}
    federation = Federation(members, drop=drop, seed=seed)
    false = federation.ids[liar]
    lying(federation, false, how)
    for _ in range(2):
        federation.run_round()
        for finding in verdict(federation).findings:
            assert false in finding.parties
            assert len(finding.parties) == 1 + finding.dispute
        if isinstance(federation.phase, ClosedByAdmin):
            break


def test_a_finding_is_a_dispute_where_nobody_can_tell() -> None:
    assert Finding(("a", "b"), Cause.EDGE_DISAGREEMENT, "").dispute
    assert Finding(("a", "b"), Cause.BOX_REFUSED, "", 7).dispute
    assert not Finding(("a",), Cause.SHARE_INVALID, "").dispute
    assert isinstance(played(3).transcript.messages()[0], Roster)
    assert not any(isinstance(message, Lost) for message in played(3).transcript.messages())


# What a file that somebody made up may cost whoever replays it (protocol §11).


def test_edges_are_looked_at_of_those_who_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 4.7 MB that names 9,000 members on a complete graph, and no upload, took 50 seconds."""
    federation = Federation(8, drop=dict.fromkeys((6, 7), After.CARD))
    federation.run_round()
    attempt: Any = federation.phase.attempt
    asked: list[str] = []
    neighbours: Callable[..., Any] = type(attempt).neighbours

    def counted(self: Any, member: str) -> Any:
        asked.append(member)
        return neighbours(self, member)

    monkeypatch.setattr(type(attempt), "neighbours", counted)
    uploads = replay(federation.transcript).uploads
    asked.clear()
    assert disputes_among(attempt, uploads, {}) == ()
    assert asked == list(federation.ids[:6])
    assert disputes_among(attempt, {}, {}) == ()
    assert asked == list(federation.ids[:6])


def test_a_refusal_is_judged_without_all_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 refusals for a cause of nobody's, in a file of 3.7 MB, each looked at 1,900 uploads."""
    federation = Federation(8)
    federation.run_round()
    found = verdict(federation)
    proposal = found.certificate.survivors if found.certificate else ()
    looked: list[str] = []

    class Looked(Survivor):
        @classmethod
        def of(cls, header: Any) -> Survivor:
            looked.append(header.member)
            return Survivor.of(header)

    monkeypatch.setattr(veilsum.protocol.replay, "Survivor", Looked)
    for cause, expected in (("x", None), (Cause.CHAIN_BROKEN, None), (Cause.OWN_UPLOAD_CHANGED, False)):
        said = follows(cause, "member-3", found.attempt, proposal, found.uploads, {})
        assert said is expected
    assert looked == ["member-3"]
    without = {member: upload for member, upload in found.uploads.items() if member != "member-3"}
    assert follows(Cause.OWN_UPLOAD_CHANGED, "member-3", found.attempt, proposal, without, {})


def test_evictions_that_the_coordinator_leaves_out_show_in_what_was_revealed_after_them() -> None:
    """Without them the dealer that proved false stands there as counted."""
    federation = Federation(8)
    false_dealers(federation, {"member-2": other_secrets})
    federation.run_round()
    assert verdict(federation).evicted == ("member-2",)
    found = doctored(federation, lambda entries: entries.pop(find(entries, Evictions)))
    assert named(found) == {(COORDINATOR, Cause.EVICTION_INVALID)}
    again = [
        index
        for index, message in enumerate(federation.transcript.messages())
        if isinstance(message, RevealSummary) and message.evicted
    ]
    assert [finding.entry for finding in found.findings] == [index - 1 for index in again]
    assert Transcript.from_json(federation.transcript.to_json()).entries == federation.transcript.entries
