"""Attacks with more than one message while a cohort forms: other manifests, replayed ciphertexts, and members that do not pair."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from assurance.attacks.base import Attack, Played
from assurance.attacks.plays import VICTIM, raised, secrets_of, summed, tell
from tests.support.forging import again, changing, swallowing
from tests.support.pairing import ciphertexts_for, let_pair
from tests.support.simulator import Federation, of
from veilsum.protocol import attempt as attempts
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting, Enrolling
from veilsum.protocol.member import Lapsed, Opened, Paired, Ready
from veilsum.protocol.messages import Message, Pairing, Upload

# fmt: off
# The table is easier to read with one row to a line.
MANIFESTS = "another manifest while members pair, or after"
EXCHANGED = "ciphertexts exchanged, withheld or replayed"
DOWNGRADE = "downgrade to keys without ML-KEM"


def show(federation: Federation, enrolling: Enrolling, member: str = VICTIM) -> tuple[Message, ...]:
    """Show a member the cards of a manifest of these members."""
    return tell(federation, member, enrolling.cards_for(enrolling.make_manifest(), member))


def collected(members: int) -> tuple[Federation, Enrolling]:
    """Return a federation whose members have sent their cards for its second cohort."""
    federation = Federation(members)
    return federation, federation.collect_cards("period-1")


def earlier_ciphertexts(*, relabelled: bool) -> Any:
    """Members pair under a second manifest, and the victim is shown what the others encapsulated under the first."""

    def play() -> object:
        federation, enrolling = collected(8)
        let_pair(federation, enrolling)
        earlier = ciphertexts_for(federation, VICTIM)
        fewer = enrolling.of_members([member for member in federation.ids if member != "member-4"])
        manifest = let_pair(federation, fewer)
        now = ciphertexts_for(federation, VICTIM)
        assert [each.member for each in earlier.shown] == [each.member for each in now.shown]
        return tell(federation, VICTIM, replace(earlier, manifest=manifest.hash) if relabelled else earlier)

    return play


def shown(members: int, *places: Sequence[int]) -> Any:
    """The first member is shown manifests of the members at these places, one after the other, and takes all but the last."""

    def play() -> object:
        federation, enrolling = collected(members)
        first = federation.ids[0]
        *taken, last = (enrolling.of_members([federation.ids[place] for place in each]) for each in places)
        for each in taken:
            show(federation, each, first)
        before = federation.phases[first].to_bytes()
        try:
            return show(federation, last, first)
        finally:
            assert federation.phases[first].to_bytes() == before

    return play


def left_out_by_choice() -> object:
    """The coordinator leaves out an honest member that has paired. That member loses nothing, and is in the next sum."""
    federation, enrolling = collected(6)
    let_pair(federation, enrolling)
    victim = of(Paired, federation.phases[VICTIM])
    federation.pair(enrolling.of_members(federation.ids[1:]))
    vectors = federation.vectors()
    outcome = federation.run_round(vectors)
    assert outcome.survivors == federation.ids[1:]
    np.testing.assert_array_equal(outcome.total, sum(vectors[member] for member in federation.ids[1:]))
    assert victim.history.settled == victim.history.unsettled == ()
    federation.now_s = victim.lapses_s
    lapsed = of(Lapsed, federation.phases[VICTIM].erase_expired(federation.now_s))
    federation.tell_ending()
    federation.enrol("period-2")
    assert federation.run_round().survivors == federation.ids
    federation.phases[VICTIM] = lapsed
    return show(federation, enrolling)


def two_manifests() -> object:
    """The victim gets its keys under the manifest of all, and all others under one without it. They share no key, and no sum has its vector."""
    federation, enrolling = collected(6)
    let_pair(federation, enrolling)
    tell(federation, VICTIM, ciphertexts_for(federation, VICTIM))
    federation.pair(enrolling.of_members(federation.ids[1:]))
    vectors = federation.vectors()
    outcome = federation.run_round(vectors)
    assert outcome.survivors == federation.ids[1:]
    np.testing.assert_array_equal(outcome.total, sum(vectors[member] for member in federation.ids[1:]))
    attempt = outcome.phase.attempt
    tell(federation, VICTIM, attempt.opening)
    victim = of(Opened, federation.phases[VICTIM])
    for context in (victim.attempt.context, attempt.context):
        theirs = set(secrets_of(federation, "member-1", context).values())
        assert theirs.isdisjoint(secrets_of(federation, VICTIM, context).values())
    (upload,) = federation._upload(VICTIM, victim)
    return Collecting.begin(attempt, federation.now_s).receive(of(Upload, upload), federation.now_s)


def other_suite() -> object:
    """One member runs the suite without ML-KEM. Its context is another, so its masks do not cancel."""
    federation = Federation(5)
    suite = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"

    def tamper(sender: str, message: Message) -> Message:
        if sender == f"coordinator>{VICTIM}" and isinstance(federation.phases[VICTIM], Ready):
            context = federation.phase.attempt.context
            with patch.object(attempts, "CIPHER_SUITE", suite):
                opened, _ = federation.ask(VICTIM, message, Opened)
                assert opened.attempt.context != context
            federation.phases[VICTIM] = opened
        return message

    federation.tamper = tamper
    federation.begin()
    federation.run_until()
    raise next(fault for who, fault in federation.faults if who == "coordinator")


def false_ciphertext() -> object:
    """A colluder encapsulates to nobody: its ciphertext is noise. The pair has two keys, as after a false seed, and four members can spare none."""
    federation = Federation(4)

    def lie(pairing: Pairing) -> Pairing:
        return again(pairing, federation.keys["member-2"], ciphertexts=(b"\x66" * 1088, *pairing.ciphertexts[1:]))

    federation.tamper = changing(Pairing, lie, "member-2")
    federation.enrol("period-1")
    return raised(federation.run_round())


def never_pairing(quiet: int) -> Any:
    """Colluders enrol and stop to pair, one after the other, each in the window of another manifest."""

    def play() -> object:
        federation = Federation(9)
        begun_s, window_s = federation.now_s, federation.content.question.windows.answer

        def tamper(sender: str, message: Message) -> Message | None:
            gone = federation.ids[: min(quiet, 1 + int(federation.now_s - begun_s) // window_s)]
            return None if isinstance(message, Pairing) and sender in gone else message

        federation.tamper = tamper
        try:
            federation.enrol("period-1")
        finally:
            assert federation.now_s == begun_s + quiet * window_s
        return federation.manifest

    return play


def repeated_without_pairing() -> object:
    """A repeated run needs every member, so that one which does not pair ends its cohort. No record is spent."""
    federation = summed()
    (context,) = federation.sets
    federation.tamper = swallowing(Pairing, "member-4")
    federation.enrol("period-0", context)
    return federation.manifest


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    found: list[Attack] = []

    def add(name: str, rule: str, survives: str, cause: Cause, play: Any, *parties: str) -> None:
        found.append(Played(name, rule, survives, cause, parties, play))

    coordinator = "coordinator"
    add("ciphertexts of an earlier manifest", "CIPHER-1", EXCHANGED, Cause.MANIFEST_MISMATCH, earlier_ciphertexts(relabelled=False), coordinator)
    add("ciphertexts of an earlier manifest, as if of this one", "CIPHER-3", EXCHANGED, Cause.BAD_SIGNATURE, earlier_ciphertexts(relabelled=True), coordinator)
    add("a second manifest of more members", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH, shown(8, range(7), range(8)), coordinator)
    add("a second manifest of others", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH, shown(8, range(7), (0, 1, 2, 3, 4, 5, 7)), coordinator)
    add("a fourth manifest", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH, shown(9, range(9), range(8), range(7), range(6)), coordinator)
    add("a member left out although it paired", "PHASE-2", MANIFESTS, Cause.WRONG_PHASE, left_out_by_choice)
    add("two manifests over the same cards, one for the victim alone", "UPLOAD-1", MANIFESTS, Cause.WRONG_CONTEXT, two_manifests, VICTIM)
    add("the suite without ML-KEM, for the victim alone", "UPLOAD-1", DOWNGRADE, Cause.WRONG_CONTEXT, other_suite, VICTIM)
    add("a ciphertext of noise", "VOID-3", EXCHANGED, Cause.EDGE_DISAGREEMENT, false_ciphertext, "member-2", "member-3")
    add("three members that stop to pair one after the other", "PAIR-6", MANIFESTS, Cause.COHORT_TOO_SMALL, never_pairing(3), "member-2")
    add("a member of a repeated run that does not pair", "PAIR-6", "repeat abuse", Cause.COHORT_TOO_SMALL, repeated_without_pairing, "member-4")
    return found
