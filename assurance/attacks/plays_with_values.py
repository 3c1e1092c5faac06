"""Attacks with more than one message, on shares, chunks and random draws."""

from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np

from assurance.attacks.base import Attack, Played
from assurance.attacks.plays import freezing, raised, refused, tell
from tests.protocol.counting import count_rows, indicated
from tests.protocol.transcripts import false_edge, with_other_share
from tests.support.forging import Edit, again, changing, complaining, false_dealers, other_secrets, unsigned
from tests.support.simulator import After, Federation, SeededRandom, of
from veilsum.protocol import attempt as attempts
from veilsum.protocol import round_spec, sizing
from veilsum.protocol.attempt import Attempt, check_manifest
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Checking,
    Collecting,
    CoordinatorPhase,
    Enrolling,
    Erasing,
    Freezing,
    Recovered,
    Voiding,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.graph import Graph
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import AgreementKey
from veilsum.protocol.member import Checked, Enrolled
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    Enrolment,
    Entry,
    Freeze,
    KeyCard,
    Receipt,
    Refusal,
    Reveal,
    Survivor,
    UploadHeader,
)
from veilsum.protocol.proposal import check_proposal
from veilsum.protocol.shamir import LIMB_PRIME, ShareError, recover_secrets

# fmt: off
# The table is easier to read with one row to a line.
VICTIM = "member-0"
SMALL = {"dim": 3, "classes": ["a", "b"]}
"""Vectors of 14 elements."""
SHARES = "wrong, short, non-canonical shares"


# Shares


def dealt(edit: Edit, *, commit: bool = True) -> Any:
    """member-4 deals false shares to all decryptors: they complain, and it leaves the sum."""

    def play() -> object:
        federation = Federation(4)
        false_dealers(federation, {"member-3": lambda _: edit}, commit=commit)
        federation.begin()
        federation.run_until()
        receipts = [m for m in federation.transcript.decode_messages() if isinstance(m, Receipt) and m.member != "member-3"]
        assert all(receipt.complaints == ("member-3",) for receipt in receipts)
        return raised(federation.finish())

    return play


def framed_dealer() -> object:
    """A decryptor complains about a true box. Four members can spare none, and both parties are named."""
    federation = Federation(4)
    federation.tamper = complaining(federation, {"member-1": ("member-0",)})
    return raised(federation.run_round())


def lying_edge() -> object:
    """A member commits to another seed than it shares, and the edge is disputed."""
    federation = Federation(4)
    federation.tamper = false_edge(federation, "member-2")
    return raised(federation.run_round())


def too_many_false() -> object:
    """More dealers deal false shares than may collude: all are named, and there is no sum."""
    federation = Federation(5)
    false_dealers(federation, dict.fromkeys(("member-3", "member-4"), lambda attempt: other_secrets(attempt, 0)))
    return raised(federation.run_round())


def recovered(change: Any) -> Any:
    """Recover a sum from shares that honest members would not reveal."""

    def play() -> object:
        federation = Federation(5)
        federation.reach(Checking)
        phase = of(Attempting, federation.phases["member-1"])
        shares = [bytes(phase.own_shares[:36])] * 4
        positions, shares = change([0, 1, 2, 3], shares)
        try:
            return recover_secrets(positions, shares)
        except ShareError as error:
            raise PeerFault(Cause.SHARE_INVALID, str(error)) from error

    return play


# An attempt that ends by VOID or erasure, whatever its members do


def cancelled() -> object:
    """The operator cancels while boxes are opened."""
    federation = Federation(3)
    raise of(Voiding, federation.reach(Checking).cancel(federation.now_s)).fault


def damaged() -> object:
    """A chunk is found changed in the coordinator's storage after all uploads were whole."""
    raise of(Voiding, Federation(3).reach(Checking).chunk_damaged("member-1", 0)).fault


def overdue() -> object:
    """No box is opened before the latest end."""
    phase = Federation(3).reach(Checking)
    raise of(Erasing, phase.pass_deadline(phase.attempt.terms.latest_end_s)).fault


def refused_by_policy() -> object:
    """So many decryptors refuse for reasons of their own that no set can be certified."""
    federation, phase = freezing(3)
    after: CoordinatorPhase = phase
    for member in ("member-0", "member-1"):
        said = Refusal.make_signed(federation.keys[member], context=phase.attempt.context, member=member, cause="mondays")
        after = after.receive(said, federation.now_s)
    raise of(Voiding, after).fault


def lost_in_one_window() -> object:
    """Two neighbours on a ring of twelve, where one of two in a row may drop out, do not upload."""
    sized = sizing.size_cohort

    def ring(*args: Any, **kwargs: Any) -> sizing.Sizes:
        return replace(sized(*args, **kwargs), degree=4, window_dropped_max=1)

    with patch.object(attempts, "size_cohort", ring):
        federation = Federation(12, decryptors=(0, 3, 6, 9), seed=1)
        drawn = federation.manifest.decryptors
        pair = next(each for each in pairwise(federation.manifest.graph.ring) if not {*each} & {*drawn})
        federation.drop = {federation.ids.index(member): After.OPENING for member in pair}
        federation.begin()
        raise of(Voiding, federation.run_until(Voiding)).fault


# Chunks


def chunk(index: int, digest: Any = None, length: int = 32, *, announced: bool = True) -> Any:
    """member-0 stores a chunk."""

    def play() -> object:
        federation = Federation(4, drop=dict.fromkeys(range(4), After.ANNOUNCEMENT), question=SMALL)
        with patch.object(round_spec, "CHUNK_ELEMENTS", 8):
            federation.begin()
            assert federation.phase.attempt.chunk_count == 2
            if announced:
                federation.phase = federation.serve_member(federation.phase, VICTIM)
        phase = of(Collecting, federation.phase)
        whole = phase.announced[VICTIM].chunk_digest(index % 2) if announced else bytes(32)
        phase.check_chunk(VICTIM, index, whole if digest is None else digest, bytes(length))
        return "stored"

    return play


def miscounted() -> object:
    """A colluder claims to hold a class eight times, so that a class with few holders would be published."""
    federation = Federation(4, margin=0)
    vectors = {member: np.zeros(4, np.int64) for member in federation.ids}
    vectors["member-3"][1] = 8
    federation.run_round(vectors)
    federation.disclose()
    raise next(fault for who, fault in federation.faults if who == VICTIM)


def beyond_the_margin() -> object:
    """The sum leaves out a member that the count counted, although the margin is zero."""
    federation = Federation(5, margin=0)
    federation.run_round({member: np.ones(4, np.int64) for member in federation.ids})
    federation.disclose()
    phase = federation.reach(Freezing)
    (refusal,) = tell(federation, VICTIM, replace(phase.proposal, headers=phase.proposal.headers[:-1]))
    assert isinstance(refusal, Refusal)
    raise PeerFault(Cause(refusal.cause))


def counted_and_missing() -> object:
    """A member that the count counted does not upload to the sum, although the margin is zero."""
    federation = Federation(5, margin=0)
    federation.run_round({member: np.ones(4, np.int64) for member in federation.ids})
    federation.disclose()
    federation.drop = {4: After.OPENING}
    federation.begin()
    raise of(Voiding, federation.run_until(Voiding)).fault


def uncounted() -> object:
    """The coordinator proposes a colluder that the count did not count."""
    federation = Federation(6, margin=0, drop={5: After.OPENING})
    federation.run_round({member: np.ones(4, np.int64) for member in federation.ids})
    federation.disclose()
    federation.drop = {}
    phase = federation.reach(Freezing)
    honest = phase.proposal.headers[0]
    added = UploadHeader.make_signed(federation.keys["member-5"], **{**unsigned(honest), "member": "member-5"})
    (refusal,) = tell(federation, VICTIM, replace(phase.proposal, headers=(*phase.proposal.headers, added)))
    assert isinstance(refusal, Refusal)
    raise PeerFault(Cause(refusal.cause))


def uncounting() -> object:
    """The rows are counted before members have recounted the count."""
    federation = indicated()
    federation.run_round(terms=federation.terms("rows"))
    raise next(fault for who, fault in federation.faults if who == VICTIM)


def repeated_classes() -> object:
    """A cohort repeats a sum, and withholds another class as well."""
    federation = indicated()
    count_rows(federation)
    context = federation.run_round().phase.attempt.context
    federation.tell_ending()
    federation.enrol("period-0", context)
    terms = federation.terms()
    federation.run_round(terms=replace(terms, withheld=(1, *terms.withheld)))
    raise next(fault for who, fault in federation.faults if who == VICTIM)


def partial() -> object:
    """Announced uploads with missing chunks don't count."""
    federation = Federation(5, drop={0: After.ANNOUNCEMENT, 1: After.ANNOUNCEMENT})
    outcome = federation.run_round()
    assert outcome.total is None
    return raised(outcome)


def unpacked(change: Any) -> Any:
    """A chunk is packed wrongly, though it was announced so."""

    def play() -> object:
        federation = Federation(4)
        federation.run_round()
        phase = of(Recovered, federation.phase)
        packed = {member: federation.spool[member, 0] for member in phase.summed_members}
        packed[VICTIM] = change(packed[VICTIM])
        return phase.prepare_unmasking().sum_chunk(0, packed.items())

    return play


# A sparse graph


def isolated() -> object:
    """The victim's whole neighbourhood on the ring is reported as dropped."""
    federation, phase = freezing(8)
    attempt = phase.attempt
    sparse = Graph(attempt.members, 2, attempt.manifest.beacon)
    around = sparse.neighbours_of(VICTIM)
    member = next(each for each in federation.ids if each not in {VICTIM, *around})
    decryptor = of(Checked, federation.phases[member])
    vars(decryptor)["attempt"] = replace(decryptor.attempt, manifest=replace(decryptor.attempt.manifest))
    vars(decryptor.attempt.manifest)["graph"] = sparse
    headers = tuple(upload.header for name, upload in phase.uploads.items() if name not in around)
    (refusal,) = tell(federation, member, Freeze(attempt.context, headers, ()))
    assert isinstance(refusal, Refusal)
    raise PeerFault(Cause(refusal.cause))


def in_a_crowd() -> tuple[Federation, Enrolling, dict[str, SigningKey]]:
    """Return the cards of a sparse cohort of 1,000, with the keys that signed them. Nobody pairs."""
    crowd = 1_000
    keys = {f"m-{i:04}": SigningKey(i.to_bytes(32, "little")) for i in range(1, crowd + 1)}
    small, seeds = Federation(3), SeededRandom(201)
    study = small.study_of(members_min=700, members_max=crowd, a=crowd // 4)
    roster = again(
        small.roster, small.admin, members=tuple(Entry(member, key.public) for member, key in keys.items())
    )
    enrolling = Enrolling(roster, study, 0, "period-0")
    sent = []
    for member, key in keys.items():
        public = AgreementKey(seeds(32)).public
        card = KeyCard.make_signed(
            key, cohort=enrolling.cohort, member=member, x25519_key=public, mlkem_key_hash=seeds(32), nonce=bytes(32), expires_s=10**9, serial=1
        )
        sent.append(Enrolment(card, bytes(1184)))
    return small, enrolling.with_enrolments(sent), keys


def without_a_neighbour() -> object:
    """A member of a sparse cohort is shown its cards by their paths, and a neighbour's is left out."""
    _, enrolling, keys = in_a_crowd()
    manifest = enrolling.make_manifest()
    victim = next(member for member in manifest.members if member not in manifest.decryptor_set)
    made, _ = Enrolled.begin_enrolment(
        victim, enrolling.roster, enrolling.study, keys[victim], counter=0, period="period-0", serial=1, now_s=0.0
    )
    enrolled = replace(of(Enrolled, made), card=enrolling.cards[victim])
    shown = enrolling.cards_for(manifest, victim)
    neighbour = manifest.graph.neighbours_of(victim)[0]
    return enrolled.check_shown(replace(shown, shown=tuple(each for each in shown.shown if each.member != neighbour)))


def isolated_in_a_crowd() -> object:
    """In a sparse cohort of 1,000, the victim's 222 neighbours are reported as dropped, and 778 members stay."""
    small, enrolling, _ = in_a_crowd()
    manifest, roster, study = enrolling.make_manifest(), enrolling.roster, enrolling.study
    assert check_manifest(roster, study, manifest).survivors_min < 778
    attempt = Attempt(roster, study, manifest, small.opening(small.terms()))
    victim = manifest.members[0]
    around = attempt.neighbours_of(victim)
    assert len(around) == manifest.degree == 222

    def survivors(*lost: str) -> tuple[Survivor, ...]:
        return tuple(Survivor(m, bytes(32)) for m in manifest.members if m not in lost)

    check_proposal(attempt, survivors(*around[:4]), ())
    met = refused(lambda: check_proposal(attempt, survivors(*around), ()))
    raise PeerFault(met)


def ground() -> object:
    """Leaving out a card changes the order and the committee. The coordinator can't name other decryptors than follow from the cards."""
    federation = Federation(5)
    enrolling = federation.collect_cards("period-1")
    beacons = set()
    for left_out in federation.ids:
        taken = enrolling.of_members([member for member in federation.ids if member != left_out])
        beacons.add(taken.make_manifest().beacon)
    assert len(beacons) == 5
    return check_manifest(
        federation.roster, federation.study, replace(federation.manifest, decryptors=federation.manifest.decryptors[1:])
    )


def canaries() -> object:
    """The text of a refused share's fault contains no part of the share."""
    federation = Federation(5)
    shares: list[bytes] = []

    def lie(reveal: Reveal) -> Reveal:
        shares.extend(bytes(run) for run in reveal.runs)
        return again(reveal, federation.keys["member-1"], runs=with_other_share(reveal.runs))

    federation.tamper = changing(Reveal, lie, "member-1")
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    fault = next(fault for _, fault in federation.faults)
    said = f"{fault}{fault!r}{outcome.phase!r}{federation.phases!r}"
    assert not any(share[:4].hex() in said or str(share[:8])[2:-1] in said for share in shares)
    raise fault


def short(_decryptor: str, shares: bytes) -> bytes:
    """Replace a share by zeros, so that the box still has the right length."""
    return bytes(36) + shares[36:]


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    found: list[Attack] = []

    def add(name: str, rule: str, survives: str, cause: Cause, play: Any, *parties: str) -> None:
        found.append(Played(name, rule, survives, cause, parties, play))

    framing = "a dealer framing a decryptor and the reverse"
    add("shares of zeros, committed to as true ones", "BOX-8", framing, Cause.BOX_REFUSED, dealt(short, commit=False), "member-0", "member-1", "member-2", "member-3")
    add("shares whose words are p", "BOX-8", SHARES, Cause.BOX_REFUSED,
        dealt(lambda _, shares: LIMB_PRIME.to_bytes(4, "little") + shares[4:]), "member-0", "member-1", "member-2", "member-3")
    add("shares whose words are above p", "BOX-8", SHARES, Cause.BOX_REFUSED,
        dealt(lambda _, shares: b"\xff" * 4 + shares[4:]), "member-0", "member-1", "member-2", "member-3")
    add("shares in another order than committed to", "BOX-8", "share order chosen by the coordinator", Cause.BOX_REFUSED,
        dealt(lambda _, shares: shares[36:] + shares[:36], commit=False), "member-0", "member-1", "member-2", "member-3")
    add("a complaint of a true box", "VOID-4", framing, Cause.BOX_REFUSED, framed_dealer, "member-0", "member-1")
    add("a false end of an edge", "VOID-3", framing, Cause.EDGE_DISAGREEMENT, lying_edge, "member-2", "member-3")
    add("the rows before the count is recounted", "OPEN-23", "count abuse", Cause.COUNT_MISMATCH, uncounting, "coordinator")
    add("a sum repeated without another class", "OPEN-22", "repeat abuse", Cause.COUNT_MISMATCH, repeated_classes, "coordinator")
    add("a survivor that the count did not count", "FREEZE-8", "count abuse", Cause.COUNT_MISMATCH, uncounted)
    add("more false dealers than may collude", "EVICT-8", framing, Cause.DEALER_INCONSISTENT, too_many_false, "member-3", "member-4")
    for name, change in (
        ("a position twice", lambda p, s: ([0, 1, 2, 2], s)),
        ("position −1, which is the secret itself", lambda p, s: ([-1, 1, 2, 3], s)),
        ("a short share", lambda p, s: (p, [s[0][:-4], *s[1:]])),
        ("no share", lambda p, s: ([], [])),
        ("a word that is p", lambda p, s: (p, [LIMB_PRIME.to_bytes(4, "little") + s[0][4:], *s[1:]])),
    ):
        add(f"recovery from {name}", "SHARE-1", "duplicate indices" if "position" in name else SHARES, Cause.SHARE_INVALID, recovered(change))
    add("a chunk of another digest", "UPLOAD-8", "digest mismatch", Cause.CHUNK_MISMATCH, chunk(0, bytes(32)), VICTIM)
    add("a chunk that is short", "UPLOAD-8", "truncated or extra chunk", Cause.CHUNK_MISMATCH, chunk(0, length=31), VICTIM)
    add("a chunk that is long", "UPLOAD-8", "truncated or extra chunk", Cause.CHUNK_MISMATCH, chunk(1, length=25), VICTIM)
    add("a chunk after the last", "UPLOAD-7", "truncated or extra chunk", Cause.CHUNK_UNKNOWN, chunk(2), VICTIM)
    add("a chunk before the first", "UPLOAD-7", "truncated or extra chunk", Cause.CHUNK_UNKNOWN, chunk(-1), VICTIM)
    add("a chunk that nobody announced", "UPLOAD-7", "partial upload counted", Cause.CHUNK_UNKNOWN, chunk(0, announced=False), VICTIM)
    add("too few uploads that are whole", "VOID-1", "partial upload counted", Cause.SURVIVORS_TOO_FEW, partial, "member-0", "member-1")
    add("two neighbours on a ring lost, of which one may be", "VOID-5", "isolating a victim on a sparse graph", Cause.WINDOW_EXCEEDED,
        lost_in_one_window, "member-02", "member-04")
    add("a counted member that does not upload", "VOID-6", "count abuse", Cause.COUNT_MISMATCH, counted_and_missing, "member-4")
    add("an attempt that its operator cancels", "VOID-7", "partial upload counted", Cause.CANCELLED, cancelled, "operator")
    add("a stored chunk that was changed", "VOID-8", "digest mismatch", Cause.STORAGE_DAMAGED, damaged, "coordinator")
    add("an attempt past its latest end", "VOID-9", "erasure abuse", Cause.TERMS_EXPIRED, overdue, "member-0", "member-1", "member-2")
    add("refusals for reasons of the decryptors' own", "VOID-10", "equivocating decryptor", Cause.POLICY_REFUSED, refused_by_policy, "member-0")
    add("a packed chunk cut short", "UPLOAD-8", "truncated or extra chunk", Cause.CHUNK_MISMATCH, unpacked(lambda data: data[:-1]), VICTIM)
    add("a packed chunk with a byte more", "UPLOAD-8", "left-over bytes", Cause.CHUNK_MISMATCH, unpacked(lambda data: data + b"\0"), VICTIM)
    add("more holders of a class than members", "COUNT-6", "count abuse", Cause.DISCLOSURE_INVALID, miscounted)
    add("fewer of the count round than the margin allows", "FREEZE-9", "count abuse", Cause.COUNT_MISMATCH, beyond_the_margin)
    add("a victim whose neighbours are all named as dropped", "FREEZE-4", "isolating a victim on a sparse graph", Cause.WINDOW_EXCEEDED, isolated)
    add("a neighbour's card left out, of 1,000", "CARDS-14", "isolating a victim on a sparse graph", Cause.MANIFEST_MISMATCH, without_a_neighbour, "coordinator")
    add("all neighbours of the victim named as dropped, of 1,000", "FREEZE-4", "isolating a victim on a sparse graph", Cause.WINDOW_EXCEEDED, isolated_in_a_crowd)
    add("a card left out until the draw suits", "CARDS-8", "grinding", Cause.WEAK_PARAMETERS, ground)
    add("a refused share, looked for in what is said of it", "REVEAL-3", "a secret in a log, repr, error or metric", Cause.SHARE_INVALID, canaries, "member-1")
    return found
