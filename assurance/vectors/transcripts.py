"""Transcripts that were doctored or contain lies: whom a verifier must blame, and for what."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from assurance.attacks.to_auditors import BEGINNINGS, LATER
from assurance.vectors.rounds import Recorder, played
from tests.protocol.transcripts import Entries, find, with_other_share
from tests.support.forging import again
from veilsum.protocol.keys import DecapsulationKey
from veilsum.protocol.merkle import Tree, climb_path
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    BadRun,
    Cards,
    Certificate,
    Erased,
    Evictions,
    Freeze,
    Manifest,
    Message,
    Receipt,
    Refusal,
    Reveal,
    RevealSummary,
    SurvivorSet,
    Upload,
    UploadSummary,
    Vote,
    cohort_id,
    deliveries_hash,
    parse_message,
)
from veilsum.protocol.replay import replay_transcript
from veilsum.protocol.shelf import Trees
from veilsum.protocol.transcript import Transcript

Case = dict[str, Any]
Edit = Callable[[Entries, Recorder], object]


def entries_of(round_: str, attempt: int) -> Entries:
    """Return the entries of the transcript in the round's file."""
    kept = played(round_).document["attempts"][attempt]["transcript"]
    return [bytes.fromhex(entry) for entry in kept["entries"]]


def context_of(round_: str, attempt: int) -> bytes:
    return bytes.fromhex(played(round_).document["attempts"][attempt]["context"])


def replayed(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a verifier finds in these entries."""
    base = entries_of(case["round"], case["attempt"])
    entries = tuple(base[each] if isinstance(each, int) else bytes.fromhex(each) for each in case["entries"])
    found = replay_transcript(
        Transcript(entries, bytes.fromhex(case["signature"])), bytes.fromhex(case["federation"])
    )
    return {
        "findings": [
            {"entry": each.entry, "parties": list(each.parties), "cause": each.cause.value}
            for each in found.findings
        ],
        "refusals": [[each.member, each.cause] for each in found.refusals],
        "signed": found.signed,
        "evicted": list(found.evicted),
        "counted": [member for member in found.attempt.members if found.counts_upload(member)],
    }


def case(name: str, round_: str, attempt: int, edit: Edit, **changes: str) -> Case:
    """Make a case of edited entries, signed again by the coordinator."""
    base, entries = entries_of(round_, attempt), entries_of(round_, attempt)
    federation = played(round_).federation
    edit(entries, federation)
    signed = Transcript(tuple(entries)).sign(federation.coordinator, context_of(round_, attempt))
    inputs: Case = {
        "round": round_,
        "attempt": attempt,
        "federation": federation.admin.public.hex(),
        "entries": [base.index(entry) if entry in base else entry.hex() for entry in entries],
        "signature": signed.signature.hex(),
    }
    return {"name": name, "function": "transcript", "input": inputs | changes}


def cases() -> Iterator[Case]:
    """Yield honest transcripts, then each lie."""
    for round_ in ("complete", "evicted", "unpaired", "erased", "lost", "voided", "nominated", "count"):
        for attempt in range(len(played(round_).document["attempts"])):
            yield case(f"the attempt {attempt} of {round_} as it is", round_, attempt, lambda *_: None)
    unsigned = bytes(64).hex()
    yield case("nobody signed it", "complete", 0, lambda *_: None, signature=unsigned)
    other = played("evicted").federation.coordinator.public.hex()
    yield case("another admin is pinned", "complete", 0, lambda *_: None, federation=other)
    for name, index, change, _ in BEGINNINGS:
        yield case(name, "nominated", 0, beginning(index, change))
    yield case("an ML-KEM key beside a card", "nominated", 0, beginning(2, with_mlkem_key))
    for name, changes in (
        ("a rehearsal of a study without a pack", {"period": "rehearsal-1"}),
        ("a judgement of a study without `judge`", {"period": "judge-1"}),
    ):
        yield case(name, "nominated", 0, beginning(2, in_other_cohort(**changes))) | {"rule": "CARDS-2"}
    for name, _, doctor, _ in LATER:
        yield case(name, "complete", 0, alone(doctor))
    for name, round_, edit in (
        ("two uploads", "complete", twice(UploadSummary, salted)),
        ("two receipts", "complete", twice(Receipt, lambda m, f: again(m, f.keys[m.member], dealers=()))),
        ("two votes", "complete", twice(Vote, elsewhere)),
        ("a reveal for another outcome", "complete", twice(RevealSummary, elsewhere)),
        (
            "two reports",
            "erased",
            twice(Erased, lambda m, f: again(m, f.keys[m.member], revealed=b"\x66" * 32)),
        ),
        ("a bad run", "complete", bad_run),
        ("a bad run of shares that are right", "complete", lambda e, f: bad_run(e, f, wrong=0)),
        ("an eviction whose shares are others", "evicted", other_proof),
        ("a refusal that the proposal does not bear out", "complete", refusing("survivors-too-few")),
        ("a refusal that nobody can judge", "complete", refusing("policy-refused")),
        ("a vote that nobody asked for", "erased", unasked),
        ("an erasure of a report that is not there", "erased", lambda e, _: e.pop(find(e, Erased))),
        ("a report that denies a reveal", "complete", denying),
        ("a complaint", "complete", complaining),
        ("an edge whose ends differ", "complete", other_edge),
        ("a proposal that rests on a set too many", "complete", resting_on_too_much),
    ):
        yield case(name, round_, 0, edit)


def alone(doctor: Callable[[Entries], object]) -> Edit:
    return lambda entries, _: doctor(entries)


def with_mlkem_key(federation: Recorder, cards: Cards) -> Cards:
    """Show member-0's ML-KEM key, which its card holds the hash of."""
    seed = bytes.fromhex(federation.drawn_cards["member-0"]["mlkem_seed"])
    first = replace(cards.shown[0], mlkem_key=DecapsulationKey(seed).public)
    return replace(cards, shown=(first, *cards.shown[1:]))


def in_other_cohort(**changes: Any) -> Callable[[Recorder, Cards], Cards]:
    """Show the cards of a manifest with other fields, and with the cohort that follows from them."""

    def change(_federation: Recorder, cards: Cards) -> Cards:
        other: Manifest = replace(cards.manifest, **changes)
        cohort = cohort_id(other.roster_hash, other.counter, other.study, other.period, other.repeats)
        return replace(cards, manifest=replace(other, cohort=cohort))

    return change


def beginning(index: int, change: Callable[[Any, Any], Message]) -> Edit:
    def edit(entries: Entries, federation: Recorder) -> None:
        entries[index] = change(federation, parse_message(entries[index])).to_bytes()

    return edit


def twice(form: type[Message], other: Callable[[Any, Recorder], Message]) -> Edit:
    """Repeat the first message of its type, changed and signed by the same member."""

    def edit(entries: Entries, federation: Recorder) -> None:
        at = find(entries, form)
        entries.insert(at + 1, other(parse_message(entries[at]), federation).to_bytes())

    return edit


def salted(summary: UploadSummary, federation: Recorder) -> Message:
    key = federation.keys[summary.header.member]
    return replace(summary, header=again(summary.header, key, salt=bytes(32)))


def elsewhere(message: Any, federation: Recorder) -> Message:
    changed: Message = again(message, federation.keys[message.member], outcome=bytes(32))
    return changed


def refusing(cause: str) -> Edit:
    def edit(entries: Entries, federation: Recorder) -> None:
        at = find(entries, Vote)
        vote: Any = parse_message(entries[at])
        refusal = Refusal.make_signed(
            federation.keys["member-5"], context=vote.context, member="member-5", cause=cause
        )
        entries.insert(at, refusal.to_bytes())

    return edit


def resting_on_too_much(entries: Entries, _federation: Recorder) -> None:
    """Let the proposal name its own set as one that the attempt rests on."""
    at, certificate = find(entries, Freeze), find(entries, Certificate)
    own = SurvivorSet(Certificate.from_bytes(entries[certificate]).survivors)
    entries[at] = replace(Freeze.from_bytes(entries[at]), earlier=(own,)).to_bytes()


def unasked(entries: Entries, federation: Recorder) -> None:
    """Let a decryptor that did not vote sign a set that nobody proposed."""
    receipt: Any = parse_message(entries[find(entries, Receipt)])
    vote = Vote.make_signed(
        federation.keys["member-0"], context=receipt.context, member="member-0", outcome=b"\x66" * 32
    )
    entries.insert(find(entries, Erased), vote.to_bytes())


def denying(entries: Entries, federation: Recorder) -> None:
    """Let the last decryptor that revealed report that it did not."""
    reveal: Any = parse_message(entries[-1])
    report = Erased.make_signed(
        federation.keys[reveal.member],
        context=reveal.context,
        member=reveal.member,
        revealed=NOTHING_REVEALED,
    )
    entries.append(report.to_bytes())


def complaining(entries: Entries, federation: Recorder) -> None:
    """Let the first decryptor complain about the first box that it holds."""
    at = find(entries, Receipt)
    receipt: Any = parse_message(entries[at])
    first, *others = receipt.dealers
    changed = again(receipt, federation.keys[receipt.member], dealers=tuple(others), complaints=(first,))
    entries[at] = changed.to_bytes()


def other_edge(entries: Entries, federation: Recorder) -> None:
    """Let the first member have committed to another seed of its first edge, as all decryptors were shown."""
    at = find(entries, UploadSummary)
    summary: Any = parse_message(entries[at])
    first, _, *others = summary.secret_commitments
    commitments = (first, bytes(16), *others)
    holders = len(Cards.from_bytes(entries[2]).manifest.decryptors)
    root = climb_path(b"".join(commitments), 0, 1 + holders, summary.path)
    header = again(summary.header, federation.keys[summary.header.member], commitment_root=root)
    entries[at] = replace(summary, header=header, secret_commitments=commitments).to_bytes()
    said: list[Any] = [parse_message(entry) for entry in entries]
    digests = {each.header.member: each.header.digest for each in said if isinstance(each, UploadSummary)}
    for place, receipt in enumerate(said):
        if isinstance(receipt, Receipt):
            covered = sorted({*receipt.dealers, *receipt.complaints})
            uploads = deliveries_hash(receipt.context, (digests[member] for member in covered))
            entries[place] = again(receipt, federation.keys[receipt.member], uploads=uploads).to_bytes()


def bad_run(entries: Entries, federation: Recorder, wrong: int = 1) -> None:
    """Let the last revealing decryptor have revealed another share at first."""
    noted: Any = parse_message(entries[-1])
    member = noted.member
    said = [parse_message(bytes.fromhex(text)) for text in played("complete").document["messages"]]
    [reveal] = [m for m in said if isinstance(m, Reveal) and (m.member, m.context) == (member, noted.context)]
    certificate: Any = parse_message(entries[find(entries, Certificate)])
    dealer = certificate.survivors[0]
    [upload] = [m for m in said if isinstance(m, Upload) and m.header.digest == dealer.digest]
    runs = with_other_share(reveal.runs, wrong)
    signed = again(reveal, federation.keys[member], runs=runs)
    shown = Cards.from_bytes(entries[2])
    delivery = Trees.from_upload(upload).delivery_to(upload, shown.manifest.decryptors.index(member))
    evidence = BadRun(
        reveal=signed.summary,
        header=upload.header,
        place=0,
        count=len(runs),
        run=runs[0],
        run_path=tuple(Tree(runs).path_to(0)),
        row=delivery.row,
        row_path=delivery.row_path,
    )
    entries.insert(len(entries) - 1, evidence.to_bytes())


def other_proof(entries: Entries, _federation: Recorder) -> None:
    at = find(entries, Evictions)
    shown = Evictions.from_bytes(entries[at])
    [proof] = shown.proofs
    first = replace(proof.holders[0], share=bytes(36))
    entries[at] = replace(shown, proofs=(replace(proof, holders=(first, *proof.holders[1:])),)).to_bytes()
