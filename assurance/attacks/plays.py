"""Attacks with more than one message: how each is refused in the end, and that the victim revealed nothing before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import rfc8785

from assurance.attacks.base import Attack, Played
from tests.support.forging import again, changing
from tests.support.pairing import ciphertext_of, let_pair, pairing_of
from tests.support.simulator import After, Federation, Outcome, of
from veilsum.protocol.attempt import Attempt, check_manifest, check_study
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    ClosedByAdmin,
    Collecting,
    Freezing,
    Recovered,
    Revealing,
    Voided,
    VoidedByErasure,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, Opened, Paired, Ready, Voted, load_phase
from veilsum.protocol.member.attempting import Attempting, Closed
from veilsum.protocol.messages import (
    Certificate,
    Ciphertexts,
    Enrolment,
    Entry,
    ErasureRequest,
    Freeze,
    Message,
    Opening,
    Pairing,
    Refusal,
    Reveal,
    Survivor,
    SurvivorSet,
    Upload,
    VoidRequest,
    Vote,
    parse_message,
    survivors_hash,
)
from veilsum.protocol.pairing import senders_to

# fmt: off
# The table is easier to read with one row to a line.
VICTIM = "member-0"
NOISE = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "sum"}
REPLAY = "replay across attempts, rounds, cohorts, federations"
OVERLAPPING = "overlapping rounds, three rounds"


def raised(outcome: Outcome) -> object:
    """Raise the fault of a round that ended without a sum."""
    if outcome.fault:
        raise outcome.fault
    return outcome


def refused(what: Callable[[], object]) -> Cause:
    """Return the cause for which a call is refused."""
    try:
        result = what()
    except PeerFault as fault:
        return fault.cause
    raise AssertionError(f"it ended with {result}")


def freezing(members: int = 6, **settings: Any) -> tuple[Federation, Freezing]:
    federation = Federation(members, **settings)
    phase = federation.reach(Freezing)
    return federation, phase


def tell(federation: Federation, member: str, message: Message) -> tuple[Message, ...]:
    """Give a member a message, store its new phase, and return its answers."""
    phase, answers = federation.ask(member, parse_message(message.to_bytes()))
    federation.phases[member] = phase
    return answers


def secrets_of(federation: Federation, member: str, context: bytes) -> dict[str, bytes]:
    """Return a member's seeds r_uv, by neighbour."""
    phase = federation.phases[member]
    ready = phase if isinstance(phase, Ready) else phase.ready  # type: ignore[attr-defined]  # it is in a cohort
    return {pair.peer: bytes(pair.mask_seed(member, context)) for pair in ready.masks}


# Cards, rosters and terms for one victim


def other_roster() -> object:
    """The admin's next roster holds a Sybil. A member that alone is shown it is in another cohort."""
    federation = Federation(5)
    sybil = Entry("sybil", SigningKey(b"\x66" * 32).public)
    other = again(federation.roster, federation.admin, number=2, members=(*federation.roster.members, sybil))
    phase, _ = Enrolled.begin_enrolment(
        VICTIM, other, federation.study, federation.keys[VICTIM], counter=0, period="period-0", serial=2, now_s=federation.now_s,
        random_bytes=federation.random,
    )
    return phase.receive(federation.cards, federation.keys[VICTIM], federation.now_s)


def other_cards() -> object:
    """One member is shown a different, validly bound card of a colluder. Honest members' ciphertexts are for another manifest than its own."""
    federation = Federation(5)
    enrolling = federation.collect_cards("period-1")
    other = again(enrolling.cards["member-4"], federation.keys["member-4"], nonce=b"\x66" * 32)
    alone = replace(enrolling, cards={**enrolling.cards, "member-4": other})
    theirs = let_pair(federation, enrolling, *federation.ids[1:])
    let_pair(federation, alone, VICTIM)
    manifest = of(Paired, federation.phases[VICTIM]).manifest
    shown = Ciphertexts(
        theirs.hash,
        tuple(ciphertext_of(theirs, pairing_of(federation, sender), VICTIM) for sender in senders_to(theirs, VICTIM)),
    )
    assert refused(lambda: tell(federation, VICTIM, shown)) is Cause.MANIFEST_MISMATCH
    return tell(federation, VICTIM, replace(shown, manifest=manifest.hash))


def other_terms(**changes: Any) -> Any:
    """One member gets different signed terms. Its upload has another context, so its masks don't cancel."""

    def play() -> object:
        federation = Federation(5)

        def other(opening: Opening) -> Opening:
            return again(opening, federation.coordinator, terms=replace(opening.terms, **changes))

        federation.tamper = changing(Opening, other, f"coordinator>{VICTIM}")
        federation.reach(Revealing)
        assert isinstance(federation.phases["member-1"], Attempting)
        context = federation.phase.attempt.context
        mine = of(Attempting, federation.phases[VICTIM])
        known = set(secrets_of(federation, "member-1", context).values())
        assert known.isdisjoint(secrets_of(federation, VICTIM, mine.attempt.context).values())
        raise next(fault for who, fault in federation.faults if who == "coordinator")

    return play


def roster_check(who: str, seen: int = 1, **changes: Any) -> Any:
    """Show a member a roster."""

    def play() -> object:
        federation = Federation(5)
        key = federation.admin if who == "admin" else federation.coordinator
        known = again(federation.roster, federation.admin, number=seen)
        shown = again(federation.roster, key, **changes)
        shown.verify_admin(federation.admin.public)
        shown.check_after(known)
        return "taken"

    return play


def sybil_enrols() -> object:
    """A stranger takes a listed name, with a key that the roster doesn't list."""
    federation = Federation(5)
    return Enrolled.begin_enrolment(
        VICTIM, federation.roster, federation.study, SigningKey(b"\x66" * 32), counter=0, period="period-0", serial=2, now_s=federation.now_s
    )


def lowered_by_leaving_out() -> object:
    """The coordinator leaves out four of eight honest cards, so that a quarter of the rest would be fewer colluders."""
    federation = Federation(8)
    enrolling = federation.collect_cards("period-1").of_members(federation.ids[:4])
    return check_manifest(federation.roster, federation.study, enrolling.make_manifest())


# Survivors


def split(members: int) -> Any:
    """However honest decryptors are split between two sets, at most one set is certified."""

    def play() -> object:
        federation, phase = freezing(members)
        quorum, context, earlier = phase.attempt.quorum, phase.attempt.context, phase.setting.earlier
        headers = tuple(upload.header for upload in phase.uploads.values())
        sets = headers[: quorum.survivors_min], headers[members - quorum.survivors_min :]
        colluders, honest = federation.ids[: quorum.colluders], federation.ids[quorum.colluders :]
        best: list[int] = []
        for cut in range(len(honest) + 1):
            voters: dict[bytes, set[str]] = {}
            for place, member in enumerate(honest):
                shown = Freeze(context, sets[place >= cut], earlier)
                _, answers = federation.ask(member, shown, Voted)
                assert isinstance(answers[0], Vote)
                voters.setdefault(answers[0].outcome, set(colluders)).add(member)
            best.append(sum(len(each) >= quorum.threshold for each in voters.values()))
        assert max(best) == 1
        last, _ = federation.ask(honest[0], Freeze(context, sets[0], earlier))
        return last.receive(Freeze(context, sets[1], earlier), federation.keys[honest[0]], federation.now_s)

    return play


def both_secrets() -> object:
    """The coordinator wants b_u from a set with u, and u's edges from a set without it. Only one of the sets gets its votes."""
    federation, phase = freezing(6)
    context, threshold = phase.attempt.context, phase.attempt.quorum.threshold
    headers = tuple(upload.header for upload in phase.uploads.values())
    votes: dict[bytes, list[Vote]] = {}
    for index, member in enumerate(federation.ids[:5]):
        (vote,) = tell(federation, member, Freeze(context, headers if index < 3 else headers[1:], ()))
        assert isinstance(vote, Vote)
        votes.setdefault(vote.outcome, []).append(vote)
    without = phase.survivors[1:]
    outcome = survivors_hash(context, without)
    forged = Vote.make_signed(federation.keys["member-5"], context=context, member="member-5", outcome=outcome)
    certificate = Certificate(context, without, "none", (*votes[outcome], forged))
    assert len(certificate.votes) == threshold - 1
    for member in federation.ids[1:5]:
        assert refused(lambda member=member: tell(federation, member, certificate)) is Cause.CERTIFICATE_INVALID  # type: ignore[misc]  # bound now
    return tell(federation, VICTIM, certificate)


def colluders_shares() -> object:
    """The colluders' shares of b_u, and all shares that honest members reveal for another member, recover nothing."""
    federation = Federation(6, drop={0: After.ANNOUNCEMENT})
    shares: list[bytes] = []

    def keep(_sender: str, message: Message) -> Message:
        if isinstance(message, Reveal):
            shares.extend(bytes(run) for run in message.runs)
        return message

    federation.tamper = keep
    federation.begin()
    shelf = federation.run_until(Revealing).setting.shelf
    federation.run_until(Recovered)
    outcome = federation.finish()
    assert isinstance(outcome.phase, Recovered)
    assert VICTIM not in outcome.phase.self_seeds
    assert all(lost == VICTIM for _, lost in outcome.phase.edge_seeds)
    held = shelf.read_delivery(VICTIM, 1)
    assert not any(share in held for share in shares)
    colluder = federation.phases["member-5"]
    return colluder.receive(
        replace(outcome.phase.certificate, context=bytes(32), votes=()), federation.keys["member-5"], federation.now_s
    )


def overruled_threshold() -> object:
    """The coordinator has one vote too few. The attempt can't be certified, and ends by erasure."""
    federation = Federation(5, drop={0: After.RECEIPT, 1: After.RECEIPT})
    outcome = federation.run_round()
    assert isinstance(outcome.phase, VoidedByErasure)
    assert outcome.total is None
    return raised(outcome)


# Rounds after rounds


def summed(members: int = 5, **settings: Any) -> Federation:
    """Make a federation with a first sum that all members know."""
    federation = Federation(members, **settings)
    assert isinstance(federation.run_round().phase, Recovered)
    federation.tell_ending()
    return federation


def victims(federation: Federation) -> object:
    """Raise the victim's first refusal."""
    raise next(fault for who, fault in federation.faults if who == VICTIM)


def the_same_period() -> object:
    """Another cohort sums the same period without one member: the difference of the sums would be that member's vector."""
    federation = summed()
    federation.enrol("period-0")
    federation.drop = {4: After.OPENING}
    federation.begin(terms=federation.terms("sum"))
    federation.run_until(Checking)
    return victims(federation)


def after_lost() -> object:
    """After LOST it is unknown what was opened, so the period gets no new sum."""
    federation = Federation(5, drop=dict.fromkeys(range(3), After.RECEIPT))
    assert isinstance(federation.run_round().phase, ClosedByAdmin)
    federation.drop = {}
    federation.begin(terms=federation.terms("sum"))
    federation.run_until(Checking)
    return victims(federation)


def lost() -> Federation:
    """Return a federation whose only attempt the admin closed as lost. All members know it, and the coordinator forgets it."""
    federation = Federation(5, drop=dict.fromkeys(range(3), After.RECEIPT))
    assert isinstance(federation.run_round().phase, ClosedByAdmin)
    federation.drop = {}
    federation.tell_ending()
    federation.links = ()
    federation.enrol("period-0")
    return federation


def lost_and_left_out() -> object:
    """A lost attempt is left out of the history, as if the coordinator had never known it, and its step is run again."""
    federation = lost()
    federation.begin(terms=federation.terms("sum"))
    federation.run_until(Checking)
    return victims(federation)


def lost_elsewhere() -> object:
    """A member has opened an attempt. Before it uploads, an attempt at the same step of another cohort is lost."""
    federation = Federation(5)
    federation.begin()
    opened, _ = federation.ask(VICTIM, federation.phase.attempt.opening, Opened)
    history = of(Ready, lost().phases[VICTIM]).history
    federation._upload(VICTIM, opened.with_history(history))
    return victims(federation)


def lost_elsewhere_since() -> object:
    """A decryptor has opened its boxes. Before it is shown the set, an attempt at the same step of another cohort is lost."""
    federation, phase = freezing(5)
    history = of(Ready, lost().phases[VICTIM]).history
    federation.phases[VICTIM] = federation.phases[VICTIM].with_history(history)
    (refusal,) = tell(federation, VICTIM, phase.proposal)
    raise PeerFault(Cause(of(Refusal, refusal).cause))


def repeated_without(place: int) -> Any:
    """A cohort repeats a sum and leaves a member out."""

    def play() -> object:
        federation = summed()
        (context,) = federation.sets
        federation.sets[context] = tuple(
            each for each in federation.sets[context] if each.member != federation.ids[place]
        )
        unformed(federation, context)
        return victims(federation)

    return play


def unformed(federation: Federation, repeats: bytes) -> None:
    """Let a cohort that repeats an attempt fail, because its members refuse the cards."""
    assert refused(lambda: federation.enrol("period-0", repeats)) is Cause.COHORT_TOO_SMALL


def repeated_otherwise(**changes: Any) -> Any:
    """A cohort repeats a sum under another question."""

    def play() -> object:
        federation = summed()
        (context,) = federation.sets
        federation.use(federation.study_of(**changes))
        federation.enrol("period-0", context)
        federation.begin()
        federation.run_until(Checking)
        return victims(federation)

    return play


def repeated_period() -> object:
    """A cohort repeats a sum as if it belonged to another period."""
    federation = summed()
    (context,) = federation.sets
    federation.enrol("period-9", context)
    federation.begin()
    federation.run_until(Checking)
    return victims(federation)


def repeated_void() -> object:
    """A cohort repeats an attempt without a sum, which has no certified set."""
    federation = Federation(5, drop={0: After.ANNOUNCEMENT, 1: After.ANNOUNCEMENT})
    outcome = federation.run_round()
    assert outcome.total is None
    federation.drop = {}
    context = outcome.phase.attempt.context
    federation.sets[context] = tuple(Survivor(member, bytes(32)) for member in federation.ids)
    federation.tell_ending()
    unformed(federation, context)
    return victims(federation)


def repeated_noise() -> object:
    """A cohort repeats a noisy sum, with fresh noise over the same records."""
    federation = summed(question={"noise": NOISE, "ring_bits": 48})
    (context,) = federation.sets
    unformed(federation, context)
    return victims(federation)


def repeated_set() -> object:
    """The coordinator shows another set as the one that a cohort repeats."""
    federation = summed()
    (context,) = federation.sets
    federation.tell_ending()
    federation.enrol("period-0", context)
    phase = federation.reach(Freezing)
    (shown,) = phase.proposal.earlier
    forged = SurvivorSet(tuple(replace(each, digest=bytes(32)) for each in shown.survivors))
    (refusal,) = tell(federation, VICTIM, replace(phase.proposal, earlier=(forged,)))
    assert isinstance(refusal, Refusal)
    raise PeerFault(Cause(refusal.cause))


def large_roster() -> object:
    """A cohort is formed from a roster of more members than the study allows."""
    federation = Federation(6)
    federation.use(federation.study_of(members_max=5))
    assert refused(lambda: federation.enrol("period-1")) is Cause.COHORT_TOO_SMALL
    return victims(federation)


def unopened(sequence: int) -> Any:
    """A decryptor that closed sequence 0 is to erase an attempt that it never opened."""

    def play() -> object:
        federation = summed()
        ready = of(Closed, federation.phases[VICTIM]).ready
        opening = again(federation.phase.attempt.opening, federation.coordinator, sequence=sequence, links=())
        federation.now_s = opening.terms.latest_end_s
        context = Attempt(ready.roster, ready.study, ready.manifest, opening).context
        return ready.erase_unopened(opening, ErasureRequest(context), federation.keys[VICTIM], federation.now_s)

    return play


def late_opening() -> object:
    """A decryptor that revealed in an attempt gets its opening again after the latest end. It must not enter it again."""
    federation = summed()
    opening = federation.phase.attempt.opening
    federation.now_s = opening.terms.latest_end_s
    return tell(federation, VICTIM, opening)


def study_check(who: str, *, revoked: bool = False, **changes: Any) -> Any:
    """Show a member a study."""

    def play() -> object:
        federation = Federation(5)
        key = federation.admin if who == "admin" else federation.coordinator
        study = again(federation.study, key, **changes)
        roster = again(federation.roster, federation.admin, revoked=(study.hash,) if revoked else ())
        return check_study(roster, study)

    return play


def unasked_end() -> object:
    """A member that uploaded gets the next opening before it has seen how the last attempt ended."""
    federation = Federation(5, drop={0: After.UPLOAD})
    assert isinstance(federation.run_round().phase, Recovered)
    federation.now_s += 100_000
    lapsed = of(Ready, federation.phases[VICTIM].erase_expired(federation.now_s))
    opening = federation.opening(federation.terms())
    return lapsed.receive(opening, federation.keys[VICTIM], federation.now_s)


def rolled_back() -> object:
    """A member restores a backup from before its upload, and would seal other secrets under the same keys. The second upload is refused."""
    federation = Federation(5)
    federation.begin()
    stored: dict[str, bytes] = {}

    def keep(sender: str, message: Message) -> Message:
        if sender == VICTIM and isinstance(message, Upload):
            stored["upload"] = message.to_bytes()
        return message

    federation.tamper = keep
    before = federation.phases[VICTIM]
    opened, _ = before.receive(federation.phase.attempt.opening, federation.keys[VICTIM], federation.now_s)
    backup = opened.to_bytes()
    federation.phase = federation.serve_member(federation.phase, VICTIM)
    restored = of(Opened, load_phase(backup))
    sealing = restored.begin_sealing(federation.random)
    sealing.mask_next_chunk(np.zeros(restored.attempt.spec.elements, np.int64))
    again_, _ = sealing.finish(federation.keys[VICTIM])
    assert again_.to_bytes() != stored["upload"]
    return federation.phase.receive(again_, federation.now_s)


def stale_keys() -> object:
    """A backup from before a round can't open that round again, because its keys belong to the earlier one."""
    federation = Federation(4)
    federation.reach(Freezing)
    stolen = federation.phases[VICTIM].to_bytes()
    federation.run_until()
    federation.finish()
    federation.begin(terms=federation.terms("sum"))
    return load_phase(stolen).receive(federation.phase.attempt.opening, federation.keys[VICTIM], federation.now_s)


def crossed(kind: str) -> Any:
    """All messages of one federation, cohort or attempt are replayed in another."""

    def play() -> object:
        kept: list[Message] = []

        def keep(sender: str, message: Message) -> Message:
            if ">" not in sender and not isinstance(message, Enrolment | Pairing):
                kept.append(message)
            return message

        steps = {"noise": {**NOISE, "recipe": "mean+sum"}, "ring_bits": 48}
        old = Federation(5, seed=1 if kind == "federation" else 0, tamper=keep, question=steps)
        old.run_round()
        federation = Federation(5, question=steps) if kind == "federation" else old
        federation.tamper = lambda _sender, message: message
        if kind == "cohort":
            federation.tell_ending()
            federation.enrol("period-1")
        federation.begin()
        met: set[Cause] = set()
        for stage in (Collecting, Checking, Freezing, Revealing):
            phase = federation.run_until(stage)
            for message in kept:
                if not isinstance(message, phase.late):
                    met.add(refused(lambda phase=phase, message=message: phase.receive(message, federation.now_s)))  # type: ignore[misc]  # bound now
        assert met == {Cause.WRONG_CONTEXT, Cause.WRONG_PHASE}
        upload = next(message for message in kept if isinstance(message, Upload))
        return Collecting.begin(federation.phase.attempt, federation.now_s).receive(upload, federation.now_s)

    return play


def void_votes() -> object:
    """Some members are asked for VOID and others shown survivors. At most one certificate can follow, and here none does."""
    federation, phase = freezing(5)
    for member in federation.ids[3:]:
        tell(federation, member, VoidRequest(phase.attempt.context, "cancelled"))
    federation.tamper = lambda sender, message: None if sender == "member-2" else message
    end = federation.run_until()
    outcome = federation.finish()
    assert outcome.total is None
    assert not isinstance(end, Voided)
    return raised(outcome)


def written(**records: float) -> bytes:
    """Make a study's content with other limits on records."""
    values = Federation(5).content.model_dump(mode="json")
    values["question"]["records"] |= records
    return rfc8785.dumps(values)


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    found: list[Attack] = []

    def add(name: str, rule: str, survives: str, cause: Cause, play: Any, *parties: str) -> None:
        found.append(Played(name, rule, survives, cause, parties, play))

    cards, terms = "other cards or roster for one victim", "terms changed mid-cohort"
    add("the next roster, for the victim alone", "CARDS-1", cards, Cause.WRONG_COHORT, other_roster)
    add("another card of a colluder, for the victim alone, validly bound", "CIPHER-3", cards, Cause.BAD_SIGNATURE, other_cards, "coordinator")
    add("another latest end for one member, validly signed", "UPLOAD-1", terms, Cause.WRONG_CONTEXT, other_terms(latest_end_s=1_050_000), VICTIM)
    add("a roster of another federation", "ROSTER-1", REPLAY, Cause.WRONG_FEDERATION, roster_check("coordinator", federation=b"\x66" * 32))
    add("a roster that the coordinator extended", "ROSTER-2", "Sybil", Cause.BAD_SIGNATURE, roster_check("coordinator"), "admin")
    add("a roster older than one that was seen", "ROSTER-3", "rolled-back roster", Cause.ROSTER_ROLLBACK, roster_check("admin", 2), "coordinator")
    add("two rosters of one number", "ROSTER-4", "rolled-back roster", Cause.ROSTER_ROLLBACK, roster_check("admin", name="another"), "admin")
    add("a listed name under another key", "ROSTER-5", "Sybil", Cause.UNKNOWN_MEMBER, sybil_enrols, VICTIM)
    add("half of the cards left out, to lower a", "CARDS-7", "shrunk cohort", Cause.COHORT_TOO_SMALL, lowered_by_leaving_out)
    for members in (5, 6, 8):
        add(f"two sets shown to the decryptors of {members}", "VOTE-3", "split survivors", Cause.ALREADY_VOTED, split(members))
    add("b_u by one set and u's edges by another", "CERT-3", "both secrets of one member", Cause.CERTIFICATE_INVALID, both_secrets)
    add("what is revealed for others, against a victim outside S", "CERT-1", "both secrets of one member", Cause.WRONG_CONTEXT, colluders_shares, "coordinator")
    add("a sum with a vote too few", "VOID-2", "t, a, n_min too low", Cause.QUORUM_LOST, overruled_threshold, "member-0", "member-1")
    add("VOID from some, survivors from others", "VOID-2", "two attempts, two sets", Cause.QUORUM_LOST, void_votes, "member-2", "member-3", "member-4")
    add("a period again in another cohort, without one member", "OPEN-19", OVERLAPPING, Cause.ALREADY_SUMMED, the_same_period, "coordinator")
    add("a period again after it was lost", "OPEN-19", "LOST abuse", Cause.ALREADY_SUMMED, after_lost, "coordinator")
    add("a lost attempt left out, and its step again", "OPEN-14", "LOST abuse", Cause.ALREADY_SUMMED, lost_and_left_out, "coordinator")
    add("an upload to a step that was lost in another cohort meanwhile", "OPEN-14", "LOST abuse", Cause.ALREADY_SUMMED, lost_elsewhere, "coordinator")
    add("a set after its step was lost in another cohort meanwhile", "FREEZE-1", "LOST abuse", Cause.ALREADY_SUMMED, lost_elsewhere_since)
    repeat = "repeat abuse"
    add("a sum repeated without another member", "CARDS-5", repeat, Cause.REPEAT_MISMATCH, repeated_without(4), "coordinator")
    for change in ({"h_min": 4, "members_min": 5}, {"loss": 50}, {"ring_bits": 48}, {"constant": True}):
        add(f"a sum repeated with another {next(iter(change))}", "OPEN-21", repeat, Cause.REPEAT_MISMATCH, repeated_otherwise(**change), "coordinator")
    add("a sum repeated with another extractor and more classes", "OPEN-21", repeat, Cause.REPEAT_MISMATCH,
        repeated_otherwise(extractor="ab" * 32, classes=["a", "b", "c", "d", "e"]), "coordinator")
    add("a sum repeated as of another period", "OPEN-20", repeat, Cause.REPEAT_MISMATCH, repeated_period, "coordinator")
    add("an attempt repeated that is VOID", "CARDS-5", repeat, Cause.REPEAT_MISMATCH, repeated_void, "coordinator")
    add("a noisy sum repeated", "CARDS-4", repeat, Cause.TERMS_REFUSED, repeated_noise, "coordinator")
    add("another set as the one that is repeated", "FREEZE-6", repeat, Cause.REPEAT_MISMATCH, repeated_set)
    add("a roster of more members than the study allows", "CARDS-6", "t, a, n_min too low", Cause.WEAK_PARAMETERS, large_roster, "admin")
    add("the erasure of an attempt beyond a gap", "ERASE-4", "erasure abuse", Cause.CHAIN_BROKEN, unopened(1), "coordinator")
    add("the erasure of an attempt behind the member", "ERASE-5", "erasure abuse", Cause.WRONG_SEQUENCE, unopened(0))
    study = "study abuse"
    add("a study of another federation", "STUDY-1", study, Cause.WRONG_FEDERATION, study_check("admin", federation=b"\x66" * 32), "admin")
    add("a study that the coordinator signed", "STUDY-2", study, Cause.BAD_SIGNATURE, study_check("coordinator"), "admin")
    add("a study that is not canonical", "STUDY-3", study, Cause.STUDY_REFUSED, study_check("admin", content=b"{ }"), "admin")
    add("a study whose rows overflow its ring", "CONTENT-17", "overflow", Cause.STUDY_REFUSED, study_check("admin", content=written(most=2**24)), "admin")
    add("a study that sums no row", "CONTENT-1", "NaN, Inf, shape, norm", Cause.STUDY_REFUSED, study_check("admin", content=written(least=0)), "admin")
    add("a study of half a row", "CONTENT-1", "NaN, Inf, shape, norm", Cause.STUDY_REFUSED, study_check("admin", content=written(least=0.5)), "admin")
    add("a study that the roster revokes", "STUDY-4", study, Cause.STUDY_REFUSED, study_check("admin", revoked=True), "admin")
    add("the opening of an attempt with a reveal, after its latest end", "OPEN-5", "erasure abuse", Cause.TERMS_EXPIRED, late_opening)
    add("an opening before the end of the last round is shown", "OPEN-8", OVERLAPPING, Cause.OUTCOME_MISSING, unasked_end, "coordinator")
    rollback = "mask or box key reuse after a rollback"
    add("a restored backup seals a second upload", "UPLOAD-6", rollback, Cause.UPLOAD_CONFLICT, rolled_back, VICTIM)
    add("a stolen state of an earlier round", "PHASE-3", rollback, Cause.WRONG_SEQUENCE, stale_keys, "coordinator")
    for kind in ("round", "cohort", "federation"):
        add(f"all that was said, in another {kind}", "UPLOAD-1", REPLAY, Cause.WRONG_CONTEXT, crossed(kind), VICTIM)
    return found
