"""An auditor replays a transcript: rule breakers are blamed, and no other party is (analysis: Transcripts)."""

from typing import Any

import pytest

import veilsum.protocol.replay
from tests.protocol.transcripts import (
    COORDINATOR,
    Entries,
    doctored,
    false_edge,
    find,
    named,
    refused_by_two,
    verdict,
)
from tests.support.calls import record_calls
from tests.support.forging import again, answering, false_dealers, other_secrets
from tests.support.simulator import After, Federation, Outcome, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import ClosedByAdmin, Recovered
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Erased,
    Evictions,
    Refusal,
    Reveal,
    RevealSummary,
    Survivor,
    parse_message,
)
from veilsum.protocol.proposal import disputes_among
from veilsum.protocol.replay import refusal_follows, replay_transcript
from veilsum.protocol.transcript import Transcript

# All parties followed the rules


def test_a_second_refusal_by_one_member_is_the_coordinators_fault() -> None:
    """An auditor judges each refusal separately, so an unlimited number would take unlimited time."""
    federation = refused_by_two()

    def repeat(entries: Entries) -> None:
        index = find(entries, Refusal, "member-1")
        refusal = of(Refusal, parse_message(entries[index]))
        other = again(refusal, federation.keys["member-1"], cause="policy-refused")
        entries.insert(index + 1, other.to_bytes())

    found = doctored(federation, repeat)
    assert (COORDINATOR, "duplicate") in named(found)
    assert {parties for parties, cause in named(found) if cause != "survivors-too-few"} == {COORDINATOR}


# A liar is blamed, and no other party


def false_towards(member: str, *, stays: bool) -> tuple[Federation, Outcome]:
    """Play rounds in which a member commits to another seed of one edge, until the cover leaves it in, or out."""
    for seed in range(50):
        federation = Federation(6, seed=seed)
        federation.tamper = false_edge(federation, member)
        outcome = federation.run_round()
        if (member in outcome.survivors) == stays:
            return federation, outcome
    raise AssertionError("the cover never chose otherwise")


def test_disputes_over_an_edge_name_both() -> None:
    federation, _ = false_towards("member-2", stays=True)
    found = verdict(federation)
    assert named(found) == {
        (("member-2", "member-5"), "edge-disagreement"),
        # the cover left member-2 in, and the seed that it had not committed to became due
        (("member-2",), "dealer-inconsistent"),
        # its own state is of the upload that it did not send
        (("member-2", "coordinator"), "own-upload-changed"),
    }
    federation, outcome = false_towards("member-2", stays=False)
    assert "member-2" not in outcome.survivors
    assert verdict(federation).is_faultless
    assert ["member-2" in each.parties for each in verdict(federation).disputes] == [True]
    assert [finding.is_dispute for finding in verdict(federation).findings] == [True]


def test_evictions_in_two_steps_name_each_dealer_once() -> None:
    """The second dealer is false only in a secret that must be revealed because of the first one's eviction."""
    federation = Federation(9)
    deal = {
        "member-7": lambda attempt: other_secrets(attempt, 0),
        "member-8": lambda attempt: other_secrets(attempt, 8),  # its edge with member-7
    }
    false_dealers(federation, deal)
    assert isinstance(federation.run_round().phase, Recovered)
    assert [type(m) for m in federation.transcript.decode_messages()].count(Evictions) == 2
    found = verdict(federation)
    assert [finding.parties for finding in found.findings] == [("member-7",), ("member-8",)]


def test_a_misshapen_reveal_proves_nothing_to_others() -> None:
    federation = Federation(5)
    federation.tamper = answering(federation, "member-1", Reveal, evicted=("member-2",))
    federation.run_round()
    assert verdict(federation).findings == ()


def test_a_decryptor_that_revealed_and_denies_it_is_named() -> None:
    federation = Federation(6, drop=dict.fromkeys((0, 1, 2, 4), After.VOTE))
    federation.tamper = answering(federation, "member-3", Erased, revealed=NOTHING_REVEALED)
    federation.run_round()
    assert isinstance(federation.phase, ClosedByAdmin)
    assert named(verdict(federation)) == {(("member-3",), "conflict")}


# What a forged file may cost an auditor (analysis: Transcripts).


def test_edges_are_looked_at_of_those_who_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 4.7 MB with 9,000 members on a complete graph, and no upload, took 50 seconds."""
    federation = Federation(8, drop=dict.fromkeys((6, 7), After.CARD))
    federation.run_round()
    attempt: Any = federation.phase.attempt
    asked = record_calls(monkeypatch, type(attempt), "neighbours_of", lambda _, member: member)
    uploads = replay_transcript(federation.transcript).uploads
    asked.clear()
    assert disputes_among(attempt, uploads, {}) == ()
    assert asked == list(federation.ids[:6])
    assert disputes_among(attempt, {}, {}) == ()
    assert asked == list(federation.ids[:6])


def test_a_refusal_is_judged_without_all_uploads(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 refusals with an invented cause, in a file of 3.7 MB, each made the auditor check 1,900 uploads."""
    federation = Federation(8)
    federation.run_round()
    found = verdict(federation)
    proposal = found.certificate.survivors if found.certificate else ()
    looked: list[str] = []

    class Looked(Survivor):
        @classmethod
        def from_header(cls, header: Any) -> Survivor:
            looked.append(header.member)
            return Survivor.from_header(header)

    monkeypatch.setattr(veilsum.protocol.replay, "Survivor", Looked)
    for cause, expected in (("x", None), (Cause.CHAIN_BROKEN, None), (Cause.OWN_UPLOAD_CHANGED, False)):
        said = refusal_follows(cause, "member-3", found.attempt, proposal, found.uploads, {})
        assert said is expected
    assert looked == ["member-3"]
    without = {member: upload for member, upload in found.uploads.items() if member != "member-3"}
    assert refusal_follows(Cause.OWN_UPLOAD_CHANGED, "member-3", found.attempt, proposal, without, {})


def test_evictions_that_the_coordinator_leaves_out_show_in_what_was_revealed_after_them() -> None:
    """Without them, the dealer that was proved false would seem to be counted."""
    federation = Federation(8)
    false_dealers(federation, {"member-2": other_secrets})
    federation.run_round()
    assert verdict(federation).evicted == ("member-2",)
    found = doctored(federation, lambda entries: entries.pop(find(entries, Evictions)))
    assert named(found) == {(COORDINATOR, Cause.EVICTION_INVALID)}
    again = [
        index
        for index, message in enumerate(federation.transcript.decode_messages())
        if isinstance(message, RevealSummary) and message.evicted
    ]
    assert [finding.entry for finding in found.findings] == [index - 1 for index in again]
    assert Transcript.from_json(federation.transcript.to_json()).entries == federation.transcript.entries
