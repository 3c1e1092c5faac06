"""Both implementations blame the same parties for doctored transcripts (analysis: Transcripts)."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from assurance.reference import lockstep
from assurance.reference.lockstep import Lockstep, judged
from assurance.reference.test_agreement import _remembered, rounds  # noqa: F401 - a fixture
from tests.support.forging import again
from tests.support.simulator import of
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    Certificate,
    Erased,
    Evictions,
    Freeze,
    Message,
    Opening,
    Receipt,
    Refusal,
    RevealSummary,
    UploadSummary,
    VoidRequest,
    Vote,
    parse_message,
)
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.transcript import Transcript

EACH = 6
CAUSES = ("survivors-too-few", "window-exceeded", "malformed", "repeat-mismatch", "count-mismatch",
          "own-upload-changed", "survivors-invalid", "chain-broken")  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Transcript]:
    """Transcripts of the federations that a test plays."""
    kept = list[Transcript]()

    def keep(transcript: Transcript) -> tuple[()]:
        kept.append(transcript)
        return ()

    monkeypatch.setattr(lockstep, "judged", keep)
    return kept


def altered(message: Message, federation: Lockstep, rng: random.Random) -> Message:  # noqa: C901 - a case a message
    """Return a false version of a message, properly signed."""
    keys, key = federation.keys, federation.keys.get(getattr(message, "member", ""), federation.coordinator)
    other = rng.choice([bytes(32), rng.randbytes(32)])
    match message:
        case UploadSummary():
            header = again(message.header, keys[message.header.member], salt=rng.randbytes(32))
            return replace(message, header=rng.choice([header, again(header, rng.choice([*keys.values()]))]))
        case Receipt():
            some = sorted(rng.sample(message.dealers, min(len(message.dealers), 1)))
            rest = tuple(each for each in message.dealers if each not in some)
            wrong: list[dict[str, Any]] = [{"uploads": other}, {"dealers": rest}]
            wrong += [{"dealers": rest, "complaints": tuple(sorted({*message.complaints, *some}))}]
            return again(message, key, **rng.choice(wrong))
        case Vote():
            return again(message, key, outcome=other)
        case RevealSummary():
            wrong = [{"outcome": other}, {"evicted": (message.member,)}, {"runs_root": other}]
            return again(message, key, **rng.choice(wrong))
        case Erased():
            return again(message, key, revealed=other)
        case Refusal():
            return again(message, key, cause=rng.choice(CAUSES))
        case Freeze():
            return rng.choice([replace(message, headers=message.headers[1:]), replace(message, earlier=())])
        case Certificate():
            fewer = replace(message, votes=message.votes[1:])
            return rng.choice([fewer, replace(fewer, context=other)])
        case Evictions():
            return replace(message, proofs=message.proofs[1:])
        case VoidRequest():
            return replace(message, reason="quorum-lost")
        case Opening():
            terms = replace(message.terms, latest_end_s=message.terms.latest_end_s + 1)
            return again(message, federation.coordinator, terms=terms)
    return message


def doctored(transcript: Transcript, federation: Lockstep, rng: random.Random) -> Transcript:
    """Remove, move, repeat, change or invent one to three entries."""
    entries, context = [*transcript.entries], replay_transcript(transcript).attempt.context
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(rng.choice([0, 4, 4, 4, 4]), len(entries))
        entry = entries[place]
        with suppress(PeerFault):
            match rng.randrange(8):
                case 0:
                    del entries[place]
                case 1:
                    entries.insert(rng.randrange(4, len(entries) + 1), entries.pop(place))
                case 2:
                    entries.insert(rng.randrange(4, len(entries) + 1), entry)
                case 3:
                    at = rng.randrange(len(entry))
                    entries[place] = entry[:at] + bytes([entry[at] ^ 1 << rng.randrange(8)]) + entry[at + 1 :]
                case 4 | 5:
                    entries[place] = altered(parse_message(entry), federation, rng).to_bytes()
                case 6:
                    later = rng.choice([place + 1, rng.randrange(place, len(entries)) + 1, len(entries)])
                    entries.insert(later, altered(parse_message(entry), federation, rng).to_bytes())
                case 7:
                    member = rng.choice(federation.ids)
                    values = {"context": context, "member": member, "cause": rng.choice(CAUSES)}
                    said = Refusal.make_signed(rng.choice([federation.keys[member]] * 4 + [federation.admin]), **values)
                    entries.insert(rng.randrange(4, len(entries) + 1), said.to_bytes())
        if len(entries) < 5:
            break
    made = Transcript(tuple(entries))
    return made.sign(federation.coordinator, context) if rng.random() < 0.9 else made


def sound(transcript: Transcript) -> bool:
    """Return whether it can be replayed; some coordinators open what no member accepts."""
    with suppress(PeerFault):
        return bool(replay_transcript(transcript))
    return False


@pytest.mark.parametrize("seed", range(2))
def test_both_blame_the_same_parties(seed: int, played: list[Transcript]) -> None:
    rng, blamed = random.Random(seed), Counter[int]()
    federation = rounds(1002 + seed)
    for transcript in filter(sound, played):
        for _ in range(EACH):
            made = doctored(transcript, federation, rng)
            try:
                blamed[len(judged(made))] += 1
            except AssertionError as error:
                error.add_note(f"{[type(parse_message(entry)).__name__ for entry in transcript.entries[4:]]}")
                raise
    assert blamed[1] + blamed[2] > EACH


def test_a_header_that_was_not_announced_is_found_in_a_freeze(played: list[Transcript]) -> None:
    """Votes are on digests. A header with another signature has the same digest, and decryptors sign it."""
    federation = Lockstep(4)
    federation.run_round()
    (transcript,) = played
    entries = [parse_message(entry) for entry in transcript.entries]
    (place,) = (at for at, entry in enumerate(entries) if isinstance(entry, Freeze))
    freeze = of(Freeze, entries[place])
    header = again(freeze.headers[0], federation.keys["member-3"])
    shown = replace(freeze, headers=(header, *freeze.headers[1:])).to_bytes()
    made = Transcript((*transcript.entries[:place], shown, *transcript.entries[place + 1 :]))
    assert judged(made.sign(federation.coordinator, federation.phase.attempt.context)) == {frozenset({"coordinator"})}
