"""The functions of the mode with mask helpers as `protocol` computes them, and the inputs of their cases."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import numpy as np

from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Spoken
from protocol.helpers.coordinator import Checking, Freezing, HelperSetting, HelperWindows, Recovered, Summing
from protocol.helpers.messages import (
    ClientSet,
    Ended,
    HelperCard,
    HelperCertificate,
    HelperCounted,
    HelperHeader,
    HelperOpening,
    HelperReceipt,
    HelperSums,
    HelperUpload,
    root_outcome,
    survivors_tree,
)
from protocol.helpers.sealing import box_key, seed_commitment
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.keystream import Masks
from protocol.merkle import Tree
from protocol.messages import Roster, Survivor
from protocol.packing import pack
from protocol.ring import Ring
from tests.vectors import helping, stage_helping
from tests.vectors.cases import LOW_ORDER, case, columns, seed

Case = Mapping[str, Any]
Json = dict[str, Any]
CLIENTS = [f"client-{index}" for index in range(6)]
PANEL = [f"helper-{place}" for place in range(4)]


def raw(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def survivors_of(entries: list[Json]) -> tuple[Survivor, ...]:
    return tuple(
        Survivor(
            member=each["member"],
            lineage=bytes.fromhex(each["lineage"]),
            records=bytes.fromhex(each["records"]),
            digest=bytes(32),
        )
        for each in entries
    )


def card(case: Case) -> Case:
    identity, private, cohort = raw(case, "identity", "private", "cohort")
    values = {"cohort": cohort, "member": case["member"], "expires_s": case["expires_s"]}
    made = HelperCard.make(SigningKey(identity), box_key=AgreementKey(private).public, **values)
    return {"public": made.box_key.hex(), "card": made.to_bytes().hex()}


def context(case: Case) -> Case:
    """Every hash that follows from roster and opening."""
    roster, opening = raw(case, "roster", "opening")
    attempt = HelperAttempt(Roster.from_bytes(roster), HelperOpening.from_bytes(opening))
    return {
        "roster_hash": attempt.roster.hash.hex(),
        "cohort": attempt.manifest.cohort.hex(),
        "manifest_hash": attempt.manifest.hash.hex(),
        "terms_hash": attempt.terms.hash.hex(),
        "layout_hash": attempt.terms.layout_hash.hex(),
        "context": attempt.context.hex(),
    }


def key(case: Case) -> Case:
    private, public, bound = raw(case, "private", "public", "context")
    sender = AgreementKey(private)
    keys = sender.public, public
    made = box_key(sender.agree(public, case["helper"]), bound, case["client"], case["helper"], keys)
    return {"sender": sender.public.hex(), "key": made.hex()}


def commitment(case: Case) -> Case:
    bound, drawn = raw(case, "context", "seed")
    return {"commitment": seed_commitment(bound, case["client"], case["index"], drawn).hex()}


def upload(case: Case) -> Case:
    announced, public = raw(case, "upload", "public")
    said = HelperUpload.from_bytes(announced)
    said.header.verify(public)
    roots = {
        "chunk_root": Tree.of(said.chunk_digests).root,
        "seed_root": Tree.of(said.commitments).root,
        "box_root": Tree.of(said.boxes).root,
    }
    assert all(getattr(said.header, name) == root for name, root in roots.items())
    return {name: root.hex() for name, root in roots.items()} | {"digest": said.header.digest.hex()}


def masks(case: Case) -> Case:
    """Σ G(s) over these seeds, chunk by chunk."""
    ring, step = Ring(case["bits"]), case["chunk_elements"]
    added = Masks(ring, added=[bytes.fromhex(each) for each in case["seeds"]])
    chunks = []
    for start in range(0, case["elements"], step):
        words = np.zeros(min(step, case["elements"] - start), ring.dtype)
        added.apply(words, start)
        chunks.append(bytes(pack(words, ring.bits)))
    return {"chunks": [c.hex() for c in chunks], "digests": [sha256(c).hexdigest() for c in chunks]}


def outcome(case: Case) -> Case:
    (bound,), survivors = raw(case, "context"), survivors_of(case["survivors"])
    tree = survivors_tree(survivors)
    made = root_outcome(bound, case["family"], case["floor"], tree.root)
    paths = [[each.hex() for each in tree.path(place)] for place in range(tree.count)]
    return {"root": tree.root.hex(), "paths": paths, "outcome": made.hex()}


def closing(case: Case) -> Case:
    bound, chain = raw(case, "context", "chain")
    sets = tuple(ClientSet(survivors_of(each)) for each in case["sets"])
    ended = Ended(bound, case["family"], case["floor"], case["reason"], sets)
    return {"closing": ended.closing.hex(), "chain": ended.extend(chain).hex()}


def certificate(case: Case) -> Case:
    roster, opening, certified = raw(case, "roster", "opening", "certificate")
    attempt = HelperAttempt(Roster.from_bytes(roster), HelperOpening.from_bytes(opening))
    found = HelperCertificate.from_bytes(certified)
    attempt.check_certificate(found)
    return {"outcome": found.outcome.hex(), "closing": found.ended.closing.hex()}


def counted(case: Case) -> Case:
    roster, opening, said, proof = raw(case, "roster", "opening", "upload", "counted")
    attempt = HelperAttempt(Roster.from_bytes(roster), HelperOpening.from_bytes(opening))
    own = HelperUpload.from_bytes(said)
    client: Any = None  # who asks is in the upload
    Spoken(client, own).check_counted(attempt, HelperCounted.from_bytes(proof))
    return {"counted": own.member}


def _setting(**numbers: Any) -> HelperSetting:
    attempt = stage_helping.attempt_of(helping.played()[1], 1)
    manifest = replace(attempt.manifest, **numbers)
    opening = replace(attempt.opening, manifest=manifest)
    return HelperSetting(replace(attempt, opening=opening), HelperWindows())


def panel(case: Case) -> Case:
    """Who is asked to sign, and for whom, after these complaints about six clients."""
    none, unsigned = bytes(32), bytes(64)
    headers = [
        HelperHeader(none, client, bytes(8), bytes(8), none, none, none, none, unsigned) for client in CLIENTS
    ]
    receipts = {
        helper: HelperReceipt(
            context=none, member=helper, dealers=(), complaints=tuple(names), signature=unsigned
        )
        for helper, names in case["complaints"].items()
    }
    setting = _setting(colluders=case["a"], survivors_min=case["n_min"])
    uploads = tuple(HelperUpload(header, (), (), ()) for header in headers)
    phase: Any = Checking(setting, 0.0, uploads, receipts).expire(0.0)
    if not isinstance(phase, Freezing):
        raise phase.fault
    return {"panel": list(phase.panel), "survivors": [each.member for each in phase.survivors]}


def settle(case: Case) -> Case:
    """Whose sums are taken, seed by seed, where each helper's lists of digests go by a name."""
    none = bytes(32)
    sums = {
        helper: HelperSums(
            context=none,
            member=helper,
            outcome=none,
            digests=tuple((name.encode(),) for name in names),
            signature=bytes(64),
        )
        for helper, names in case["sums"].items()
    }
    certificate: Any = SimpleNamespace()  # is not looked at
    phase: Any = Summing(_setting(), 0.0, certificate, tuple(sums), sums).settle()
    if not isinstance(phase, Recovered):
        raise phase.fault
    return {"holders": [list(source.holders) for source in phase.sources], "outvoted": list(phase.outvoted)}


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    "helper-card": card,
    "helper-context": context,
    "helper-box-key": key,
    "helper-seed": commitment,
    "helper-upload": upload,
    "helper-masks": masks,
    "helper-outcome": outcome,
    "helper-closing": closing,
    "helper-certificate": certificate,
    "helper-counted": counted,
    "helper-panel": panel,
    "helper-settle": settle,
}


def cases() -> Iterator[Json]:
    """Inputs, those out of the attempts last."""
    yield from keys()
    yield from sums()
    yield from ends()
    yield from panels()
    yield from settlements()
    yield from said()


def keys() -> Iterator[Json]:
    for number in range(2):
        inputs = {
            "identity": seed(f"identity {number}"),
            "private": seed(f"x {number}"),
            "cohort": seed("cohort"),
        }
        yield case(
            f"a card, {number}", "helper-card", **inputs, member=f"helper-{number}", expires_s=2_000_000
        )
    public = AgreementKey(bytes.fromhex(seed("x 0"))).public.hex()
    bound = {"private": seed("e"), "context": seed("ctx")}
    for client, helper in (("ann", "helper-0"), ("bob", "helper-0"), ("ann", "helper-1")):
        ends = {"client": client, "helper": helper}
        yield case(f"the box of {client} for {helper}", "helper-box-key", public=public, **bound, **ends)
    ends = {"client": "ann", "helper": "helper-0"}
    for point in LOW_ORDER:
        yield case(f"low order {point[:8]}", "helper-box-key", public=point, **bound, **ends)
    for index in range(4):
        drawn = {"context": seed("ctx"), "client": "ann", "index": index, "seed": seed("seed")}
        yield case(f"c_{index}", "helper-seed", **drawn)


def sums() -> Iterator[Json]:
    for bits, count in ((32, 1), (32, 3), (33, 3), (48, 3), (64, 2)):
        drawn = [seed(f"s {index}") for index in range(count)]
        shape = {"bits": bits, "elements": 19, "chunk_elements": 16}
        yield case(f"{count} at {bits} bits", "helper-masks", **shape, seeds=drawn)


def ends() -> Iterator[Json]:
    one, other = columns("a b c"), columns("a b d e")
    bound = {"context": seed("ctx"), "family": "exact"}
    for name, floor, survivors in (("three", 3, one), ("four", 3, other), ("three, of another g", 4, one)):
        yield case(name, "helper-outcome", **bound, floor=floor, survivors=survivors)
    for name, reason, sets in (
        ("a sum", "none", [one]),
        ("VOID", "survivors-too-few", []),
        ("lost without a set", "lost", []),
        ("lost with two sets", "lost", [one, other]),
    ):
        yield case(name, "helper-closing", **bound, floor=3, reason=reason, sets=sets, chain=seed("chain"))


def panels() -> Iterator[Json]:
    """Six clients, of whom one may be false, and four must stay where the case says no other number."""
    for name, complaints, least in (
        ("nobody complains", ["", "", "", ""], 4),
        ("one complains of one", ["", "2", "", ""], 4),
        ("two complain of one", ["2", "2", "", ""], 4),
        ("two complain of two, which leaves enough", ["2", "3", "", ""], 4),
        ("two complain of two, and one of them is left out", ["2", "3", "", ""], 5),
        ("one complains of two", ["23", "", "", ""], 4),
        ("two complain of two each", ["23", "45", "", ""], 4),
        ("three receipts", ["", "1", "", None], 4),
        ("two receipts", ["", "1", None, None], 4),
        ("three receipts that leave too few", ["1", "2", "3", None], 4),
        ("four complaints, three of the helpers leave enough", ["0", "0", "0", "4"], 5),
    ):
        said = {
            helper: [CLIENTS[int(at)] for at in each]
            for helper, each in zip(PANEL, complaints, strict=True)
            if each is not None
        }
        yield case(name, "helper-panel", complaints=said, a=1, n_min=least)


def settlements() -> Iterator[Json]:
    """Each helper's lists by ascending seed: helper-0 lacks the first, helper-3 the last."""
    for name, lists in (
        ("all agree", ["bcd", "acd", "abd", "abc"]),
        ("three of them", ["bcd", "acd", "abd", None]),
        ("two of them hold two seeds together", ["bcd", "acd", None, None]),
        ("one false sum", ["xcd", "acd", "abd", "abc"]),
        ("three false sums of one helper", ["xyz", "acd", "abd", "abc"]),
        ("one false sum, and one helper away", ["xcd", "acd", "abd", None]),
        ("three sums of one seed", ["byd", "axd", "abd", "abc"]),
        ("two helpers outvoted", ["xcd", "ycd", "abd", "abc"]),
        ("two false sums alike", ["bxd", "axd", "abd", "abc"]),
    ):
        sums = {helper: list(each) for helper, each in zip(PANEL, lists, strict=True) if each is not None}
        yield case(name, "helper-settle", sums=sums)


def said() -> Iterator[Json]:
    """Contexts, uploads, certificates and proofs of counting, out of the attempts: with four helpers' cards, and with three."""
    federation, document = helping.played()
    for number in (0, 2, 3):
        attempt = document["attempts"][number]
        opened = {"roster": document["roster"], "opening": attempt["opening"]}
        texts = dict.fromkeys(document["messages"][index] for _, _, index in attempt["log"])
        [certified] = [text for text in texts if text[:68] == f"0229{attempt['context']}"]
        if number != 3:
            yield case(f"attempt {number}", "helper-context", **opened)
        if number != 2:
            yield case(f"attempt {number}", "helper-certificate", **opened, certificate=certified)
        uploads = [text for text in texts if text[:4] == "0222"]
        for made in (
            HelperUpload.from_bytes(bytes.fromhex(text)) for text in uploads[: 6 if number == 0 else 1]
        ):
            announced = {"upload": made.to_bytes().hex(), "public": federation.keys[made.member].public.hex()}
            yield case(f"attempt {number}, {made.member}", "helper-upload", **announced)
            if number == 0 and made.member in CLIENTS[1:3]:
                found = HelperCertificate.from_bytes(bytes.fromhex(certified))
                proof = found.counted(made.member).to_bytes().hex()
                yield case(made.member, "helper-counted", **opened, upload=announced["upload"], counted=proof)
