"""Flaws found by hostile reviews: the attack as it was made, and its outcome now."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.transcripts import find, kinds, named, verdict
from tests.support.forging import again, false_dealers, other_secrets, signed_otherwise
from tests.support.refusals import refused
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import CoordinatorPhase, Failed, Freezing, Recovered, Revealing
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Evictions, Message, Refusal, Reveal, Vote
from veilsum.protocol.replay import UploadStanding, replay_transcript
from veilsum.protocol.transcript import Accusation, Transcript

# What a hostile review of transcripts broke, each as it was done, and how it ends now.


# A guilty party hid what proved it false behind something harmless that was refused for the same cause


@pytest.mark.parametrize(
    ("form", "harmless", "cause"),
    [
        (Reveal, lambda reveal, key: [again(reveal, key, runs=())], "reveal-misshapen"),
        (Vote, lambda vote, key: [vote, signed_otherwise(vote, key)], "already-voted"),
    ],
    ids=["a reveal of the wrong shape", "a vote signed anew"],
)
def test_what_is_refused_for_the_same_cause_hides_no_answer_for_another_outcome(
    form: type[Reveal | Vote], harmless: Callable[[Any, SigningKey], list[Message]], cause: str
) -> None:
    class Hiding(Federation):
        def take_reply(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
            if member == "member-1" and isinstance(reply, form):
                key = self.keys[member]
                for each in (*harmless(reply, key), again(reply, key, outcome=bytes(32))):
                    phase = super().take_reply(phase, member, each)
            return super().take_reply(phase, member, reply)

    federation = Hiding(6)
    federation.run_round()
    assert isinstance(federation.phase, Recovered)
    assert named(verdict(federation)) == {(("member-1",), cause)}
    kind = "RevealSummary" if form is Reveal else "Vote"
    assert kinds(federation.transcript).count(kind) == 5  # t = 4, and the lie


def refusal(federation: Federation, member: str, **changes: Any) -> Refusal:
    values = {"context": federation.phase.attempt.context, "cause": "policy-refused"}
    return Refusal.make_signed(federation.keys[member], **{**values, "member": member, **changes})


def test_who_refuses_twice_is_not_noted_where_its_conflicts_would_be() -> None:
    federation = Federation(6)
    federation.begin()
    phase = federation.run_until(Freezing).receive(refusal(federation, "member-1"), federation.now_s)
    other = refusal(federation, "member-1", cause="chain-broken")
    with refused("conflict", "member-1") as caught:
        phase.receive(other, federation.now_s)
    assert Accusation.from_refusal(other, caught.value) is None


# A few members filled the file until it was too large to fetch: a reveal may name 10,000 members


def test_a_reveal_for_more_evicted_than_may_collude_is_not_kept() -> None:
    federation = Federation(6)
    phase = federation.reach(Revealing)
    many = tuple(f"m-{number:04}" for number in range(2))
    said = Reveal.make_signed(
        federation.keys["member-1"],
        context=phase.attempt.context,
        member="member-1",
        outcome=bytes(32),
        evicted=many,
        runs=(),
    )
    with refused("reveal-misshapen", "member-1") as caught:
        phase.receive(said, federation.now_s)
    assert Accusation.from_refusal(said, caught.value) is None
    less = again(said, federation.keys["member-1"], evicted=many[:1])
    with refused("reveal-misshapen", "member-1") as caught:
        phase.receive(less, federation.now_s)
    assert Accusation.from_refusal(less, caught.value) is not None


# `veilsum verify` said "counted" of what was not


def test_who_was_certified_and_never_summed_is_not_counted() -> None:
    federation = Federation(8, drop={0: After.VOTE, 1: After.VOTE, 2: After.VOTE})
    federation.begin()
    federation.phase = federation.run_until().cancel(federation.now_s)
    federation.finish()
    assert isinstance(federation.phase, Failed)
    found = verdict(federation)
    assert (found.signed, found.is_faultless, found.revealed) == (True, True, False)
    assert {found.upload_standing(member) for member in federation.ids} == {UploadStanding.UNREVEALED}
    assert not any(map(found.counts_upload, federation.ids))


def test_reveals_without_the_evicted_are_what_makes_a_sum() -> None:
    federation = Federation(9)
    false_dealers(federation, {"member-7": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()
    assert verdict(federation).revealed
    entries = federation.transcript.entries
    cut = Transcript(entries[: find(entries, Evictions) + 1])
    found = replay_transcript(cut.sign(federation.coordinator, federation.phase.attempt.context))
    assert (found.evicted, found.revealed) == (("member-7",), False)
    assert found.upload_standing("member-1") is UploadStanding.UNREVEALED


def test_who_cuts_its_eviction_out_of_the_file_is_not_counted() -> None:
    federation = Federation(9)
    false_dealers(federation, {"member-7": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()
    whole = federation.transcript
    place = find(whole.entries, Evictions)
    cut = replace(whole, entries=whole.entries[:place])
    found = replay_transcript(cut, federation.admin.public)
    assert not found.signed
    assert {found.upload_standing(member) for member in ("member-1", "member-7", "stranger")} == {
        UploadStanding.UNSIGNED
    }
    assert not found.counts_upload("member-7")
    # What the proof shows needs no testimony.
    shown = replay_transcript(replace(whole, signature=b""), federation.admin.public)
    assert (shown.upload_standing("member-7"), shown.upload_standing("member-1")) == (
        UploadStanding.EVICTED,
        UploadStanding.UNSIGNED,
    )


def test_what_a_file_says_in_the_versions_place_reaches_no_terminal() -> None:
    with refused("unknown-version") as caught:
        Transcript.from_json('{"veilsum-transcript": "\\u001bccounted", "entries": [], "signature": ""}')
    assert "counted" not in caught.value.detail


@pytest.mark.parametrize("many", ["{},", "[],", '"a":0,', "0,"], ids=["objects", "lists", "names", "numbers"])
def test_a_small_file_takes_little_memory(many: str) -> None:
    """Sixteen megabytes, of the 64 that members accept, became half a gigabyte before any check."""
    text = (
        '{"veilsum-transcript": 2, "signature": "", "entries": [' + many * ((16 << 20) // len(many)) + "0]}"
    )
    tracemalloc.start()
    try:
        with refused("malformed"):
            Transcript.from_json(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
