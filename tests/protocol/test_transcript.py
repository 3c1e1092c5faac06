"""What a coordinator records of an attempt, and the transcript's file."""

import json
from dataclasses import replace

import pytest

from tests.protocol.transcripts import Insistent, bad_share, equivocating, kinds
from tests.support.forging import again, false_dealers, other_secrets
from tests.support.refusals import refused
from tests.support.simulator import Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    BadRun,
    Evictions,
    Message,
    Receipt,
    Reveal,
    RevealSummary,
    Upload,
    Vote,
    parse_message,
)
from veilsum.protocol.transcript import MAX_ENTRIES, Accusation, Transcript


def test_proofs_against_more_dealers_than_may_collude_are_noted_too() -> None:
    federation = Federation(5)
    deal = {member: lambda attempt: other_secrets(attempt, 0) for member in ("member-0", "member-1")}
    false_dealers(federation, deal)
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Failed)
    shown = of(Evictions, parse_message(federation.transcript.entries[-1]))
    assert shown.evicted == ("member-0", "member-1")


def test_no_share_is_noted_but_of_the_false() -> None:
    federation = Federation(4)
    runs: list[bytes] = []

    def keep(_sender: str, message: Message) -> Message:
        runs.extend(message.runs if isinstance(message, Reveal) else ())
        return message

    federation.tamper = keep
    federation.run_round()
    noted = b"".join(federation.transcript.entries)
    assert len(runs) > 10
    assert not any(run[i : i + 36] in noted for run in runs for i in range(0, len(run), 36))


def test_one_bad_run_of_a_decryptor_is_enough() -> None:
    federation = Insistent(5)
    federation.tamper = bad_share(federation, "member-1")
    federation.follow_up = lambda member, message: message if isinstance(message, Reveal) else None
    federation.run_round()
    faults = [fault for who, fault in federation.faults if fault.cause is Cause.SHARE_INVALID]
    assert len(faults) == 2
    assert kinds(federation.transcript).count("BadRun") == 1
    assert kinds(federation.transcript).count("RevealSummary") == federation.manifest.threshold


@pytest.mark.parametrize(
    ("form", "changes", "noted", "more"),
    [
        (Upload, {"salt": bytes(32)}, "UploadSummary", 1),
        (Receipt, {"dealers": ()}, "Receipt", 1),
        (Vote, {"outcome": bytes(32)}, "Vote", 1),
        (Reveal, {"outcome": bytes(32)}, "RevealSummary", 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_refused_is_noted_where_it_proves_something(
    form: type[Message], changes: dict[str, object], noted: str, more: int
) -> None:
    plain = Federation(5)
    plain.run_round()
    federation = equivocating("member-1", form, **changes)
    federation.run_round()
    assert kinds(federation.transcript).count(noted) == kinds(plain.transcript).count(noted) + more


def test_a_refused_message_is_noted_once_for_each_cause_and_sender() -> None:
    transcript = Transcript((b"",))
    federation = Federation(4)
    vote = Vote.make_signed(
        federation.keys["member-0"], context=bytes(32), member="member-0", outcome=bytes(32)
    )

    def accusation(message: Message, cause: Cause) -> Accusation:
        return of(Accusation, Accusation.from_refusal(message, PeerFault(cause, "", ["member-0"])))

    once = transcript.note_accusation(accusation(vote, Cause.ALREADY_VOTED))
    assert once.entries == (b"", vote.to_bytes())
    other = again(vote, federation.keys["member-0"], outcome=b"\x01" * 32)
    assert once.note_accusation(accusation(other, Cause.ALREADY_VOTED)) is once
    assert once.note_accusation(accusation(vote, Cause.CONFLICT)).entries == once.entries
    assert Accusation.from_refusal(vote, PeerFault(Cause.BAD_SIGNATURE, "", ["member-0"])) is None


def test_what_changes_nothing_is_not_noted() -> None:
    federation = Insistent(5)
    federation.follow_up = lambda _member, message: message
    federation.run_round()
    assert len(set(federation.transcript.entries)) == len(federation.transcript.entries)
    plain = Federation(5)
    plain.run_round()
    assert kinds(federation.transcript) == kinds(plain.transcript)


def test_votes_that_nobody_asked_for_do_not_fill_the_file() -> None:
    federation = Federation(5)
    federation.begin()
    federation.phase = federation.note_change(federation.phase.cancel(federation.now_s))
    context, key = of(Voiding, federation.phase).attempt.context, federation.keys["member-0"]
    vote = Vote.make_signed(key, context=context, member="member-0", outcome=bytes(32))
    for outcome in range(3):
        other = again(vote, key, outcome=bytes([outcome]) * 32)
        federation.phase = federation.take_reply(federation.phase, "member-0", other)
    assert kinds(federation.transcript).count("Vote") == 1


def test_the_file_is_read_as_it_was_written() -> None:
    federation = Federation(3)
    federation.run_round()
    text = federation.transcript.to_json()
    assert Transcript.from_json(text) == replace(federation.transcript, accused=frozenset())
    assert json.loads(text)["veilsum-transcript"] == 4
    forms = [type(message) for message in federation.transcript.decode_messages()]
    assert forms[-1] is RevealSummary
    assert BadRun not in forms


GOOD = {"veilsum-transcript": 4, "entries": ["0201"], "signature": "ab"}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", Cause.MALFORMED),
        ("[]", Cause.MALFORMED),
        ("[" * 100_000, Cause.MALFORMED),
        ("{}", Cause.MALFORMED),
        (json.dumps({**GOOD, "veilsum-transcript": 2}), Cause.UNKNOWN_VERSION),
        (json.dumps({**GOOD, "entries": "0201"}), Cause.MALFORMED),
        (json.dumps({**GOOD, "entries": {"0201": 0}}), Cause.MALFORMED),
        (json.dumps({**GOOD, "entries": ["020"]}), Cause.MALFORMED),
        (json.dumps({**GOOD, "entries": [1]}), Cause.MALFORMED),
        (json.dumps({**GOOD, "signature": "zz"}), Cause.MALFORMED),
        (json.dumps({**GOOD, "signature": None}), Cause.MALFORMED),
        (json.dumps({**GOOD, "entries": [""] * (MAX_ENTRIES + 1)}), Cause.OVERSIZED),
    ],
    ids=range(12),
)
def test_no_other_file_is_read(text: str, cause: Cause) -> None:
    with refused(cause.value):
        Transcript.from_json(text)
