"""The vectors' functions as `protocol` computes them: a case's inputs as JSON has them, to its outputs."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from protocol.attempt import Attempt, cohort_sizes
from protocol.boxes import seal, unseal
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.due import due_secrets
from protocol.errors import PeerFault
from protocol.evicting import check_proof
from protocol.graph import Graph, draw_committee
from protocol.identity import SigningKey
from protocol.keys import AgreementKey, PairKey
from protocol.keystream import Masks
from protocol.ledger import LedgerFault, Opened, check_ledger
from protocol.merkle import Tree, verify
from protocol.messages import (
    EMPTY_CHAIN,
    Certificate,
    Entry,
    LedgerException,
    Manifest,
    Opening,
    Past,
    Proof,
    Roster,
    Survivor,
    SurvivorSet,
    Upload,
    closing_hash,
    edge_commitment,
    extend_chain,
    parse,
    self_commitment,
    share_commitment,
    survivors_hash,
    void_hash,
)
from protocol.messages.evictions import Evictions
from protocol.packing import PackingError, add_packed, pack, unpack
from protocol.published import ResultRecord
from protocol.record import record_body, record_digest
from protocol.ring import Ring
from protocol.sealing import commitment_tree
from protocol.shamir import ShareError, recover_secrets, share_secrets
from protocol.tags import Tag, hash_fields
from tests.vectors import results, transcripts

Case = Mapping[str, Any]
TAGS = {tag.value.decode().split("/")[2].rstrip("\0"): tag for tag in Tag}


def run(function: str, case: Case) -> Case:
    """The case's `output` or `refused`, as a vector says it."""
    try:
        return {"output": FUNCTIONS[function](case)}
    except PeerFault as fault:
        return {"refused": fault.cause.value}
    except PackingError:
        return {"refused": Cause.CHUNK_MISMATCH.value}
    except ShareError:
        return {"refused": Cause.SHARE_INVALID.value}


def raw(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def pair_key(case: Case) -> Case:
    private, public, cohort, manifest = raw(case, "private", "public", "cohort", "manifest_hash")
    shared = AgreementKey(private).agree(public, case["high"])
    pair = PairKey.establish(TAGS[case["purpose"]], case["low"], case["high"], shared, cohort, manifest)
    return {"shared": shared.hex(), "key": pair.key.hex()}


def ratchet(case: Case) -> Case:
    key, cohort = raw(case, "key", "cohort")
    return {"key": PairKey("peer", key).ratcheted(cohort, case["sequence"]).key.hex()}


def mask_seed(case: Case) -> Case:
    key, context = raw(case, "key", "context")
    ends = [PairKey(a, key).mask_seed(b, context) for a, b in (case_ends(case), case_ends(case)[::-1])]
    assert ends[0] == ends[1]
    return {"seed": ends[0].hex()}


def case_ends(case: Case) -> tuple[str, str]:
    return case["low"], case["high"]


def box_key(case: Case) -> Case:
    key, context, salt = raw(case, "key", "context", "salt")
    pair = PairKey(case["decryptor"], key)
    return {"key": pair.box_key(case["dealer"], case["decryptor"], context, salt).hex()}


def commitment(case: Case) -> Case:
    (context, secret), members = raw(case, "context", "secret"), case["members"]
    made = {
        "commit-self": lambda: self_commitment(context, members[0], secret),
        "commit-edge": lambda: edge_commitment(context, members[0], members[1], secret),
        "commit-share": lambda: share_commitment(context, members[0], members[1], case["index"], secret),
    }
    return {"commitment": made[case["purpose"]]().hex()}


def hashed(case: Case) -> Case:
    return {"hash": hash_fields(TAGS[case["tag"]], *map(bytes.fromhex, case["fields"])).hex()}


def merkle(case: Case) -> Case:
    tree = Tree.of(map(bytes.fromhex, case["leaves"]))
    paths = [[each.hex() for each in tree.path(index)] for index in range(tree.count)]
    return {"root": tree.root.hex(), "paths": paths}


def merkle_path(case: Case) -> Case:
    root, leaf = raw(case, "root", "leaf")
    path = [bytes.fromhex(each) for each in case["path"]]
    return {"holds": verify(root, leaf, case["index"], case["count"], path)}


def keystream(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = np.zeros(case["count"], ring.dtype)
    Masks(ring, added=[bytes.fromhex(case["seed"])]).apply(words, case["offset"])
    return {"words": [int(word) & ring.mask for word in words]}


def packed(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = ring.to_ring(np.array(case["elements"], np.int64))
    return {"packed": bytes(pack(words, ring.bits)).hex()}


def unpacked(case: Case) -> Case:
    ring, data = Ring(case["bits"]), bytes.fromhex(case["packed"])
    words = unpack(data, ring.bits, case["count"])
    total = np.zeros(case["count"], ring.dtype)
    add_packed(total, data, ring.bits)
    assert (ring.lift(total) == ring.lift(words)).all()
    return {"words": words.tolist(), "centred": ring.lift(words).tolist()}


def masked(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = ring.to_ring(np.array(case["elements"], np.int64))
    seeds = {sign: [bytes.fromhex(seed) for seed in case[sign]] for sign in ("added", "subtracted")}
    Masks(ring, **seeds).apply(words, case["offset"])
    return {"packed": bytes(pack(words, ring.bits)).hex()}


def box(case: Case) -> Case:
    return {"box": seal(*raw(case, "key", "shares", "context")).hex()}


def open_box(case: Case) -> Case:
    key, sealed, context = raw(case, "key", "box", "context")
    return {"shares": unseal(key, sealed, context, "dealer").hex()}


def deal(case: Case) -> Case:
    """The coefficients are what `share_secrets` draws, degree after degree."""
    drawn = b"".join(value.to_bytes(4, "little") for row in case["coefficients"] for value in row)

    def random_bytes(count: int) -> bytes:
        assert count == len(drawn)
        return drawn

    secrets = [bytes.fromhex(secret) for secret in case["secrets"]]
    threshold = 1 + len(case["coefficients"])
    shares = share_secrets(secrets, threshold, case["holders"], random_bytes)
    return {"shares": [[share.tobytes().hex() for share in row] for row in shares]}


def recover(case: Case) -> Case:
    shares = [bytes.fromhex(share) for share in case["shares"]]
    (secret,) = recover_secrets(case["positions"], shares)
    return {"secret": secret.hex()}


def ring(case: Case) -> Case:
    beacon, members = bytes.fromhex(case["beacon"]), [f"m-{i:05}" for i in range(case["members"])]
    graph = Graph(members, case["degree"], beacon)
    return {
        "order": [members.index(member) for member in graph.ring],
        "neighbours": {member: list(graph.neighbours(member)) for member in case["of"]},
        "committee": list(draw_committee(beacon, members, case["committee"])),
    }


def window(case: Case) -> Case:
    members = [f"m-{i:05}" for i in range(case["members"])]
    graph = Graph(members, case["degree"], bytes.fromhex(case["beacon"]))
    found = graph.window_excess(case["lost"], case["dropped_max"])
    return {"exceeded_by": None if found is None else list(found)}


def sizes(case: Case) -> Case:
    everyone, key = [f"m-{i:05}" for i in range(case["roster"])], bytes(32)
    roster = Roster(
        version_number=1,
        federation=key,
        coordinator=key,
        members=tuple(Entry(member, key) for member in everyone),
        decryptors=tuple(everyone[: case["nominated"]]),
        extractors=(),
        readers=(),
        withhold=0,
        signature=bytes(64),
    )
    members = everyone[: case["members"]]
    found = cohort_sizes(roster, members, colluders=case["a"], honest_min=case["h_min"], loss=case["loss"])
    quorum = found.quorum
    return {
        "committee": found.committee.value,
        "decryptors": quorum.decryptors,
        "a_D": quorum.decryptor_colluders,
        "n_min": quorum.survivors_min,
        "t": quorum.threshold,
        "k": found.degree,
        "D_max": found.window_dropped_max,
    }


def cover(case: Case) -> Case:
    disputes = [Dispute(Cause(each["cause"]), *each["parties"]) for each in case["disputes"]]
    return {"dropped": sorted(vertex_cover(bytes.fromhex(case["context"]), disputes, case["a"]))}


def survivors_of(entries: list[Case]) -> tuple[Survivor, ...]:
    return tuple(
        Survivor(
            member=each["member"],
            lineage=bytes.fromhex(each["lineage"]),
            records=bytes.fromhex(each["records"]),
            digest=bytes.fromhex(each.get("digest", "00" * 32)),
        )
        for each in entries
    )


def ledger(case: Case) -> Case:
    def opened(each: Case) -> Opened:
        (context,) = raw(each, "context")
        return Opened(context, each["family"], each["floor"], survivors_of(each["survivors"]))

    exceptions = [
        LedgerException(
            federation=bytes(32),
            cohort=bytes(32),
            sequence=0,
            members=tuple(members),
            reason="",
            signature=bytes(64),
        )
        for members in case["exceptions"]
    ]
    check_ledger([*map(opened, case["opened"])], opened(case["proposal"]), exceptions)
    return {"admitted": True}


def exposed(case: Case) -> Case:
    """The group that a refusal names, and its rounds."""
    try:
        ledger(case)
    except LedgerFault as fault:
        return {"group": list(fault.group.members), "rounds": [each.hex() for each in fault.group.rounds]}
    raise AssertionError(case)


def outcomes(case: Case) -> Case:
    """How an attempt may end, and the chain's link for it."""
    (context,) = raw(case, "context")
    sets = [survivors_of(each) for each in case["sets"]]
    hashes = sorted(survivors_hash(context, each) for each in sets)
    past = Past(
        context,
        case["reason"],
        tuple(SurvivorSet(s) for s in sorted(sets, key=lambda s: survivors_hash(context, s))),
    )
    past.validate()
    assert past.closing == closing_hash(context, case["reason"], hashes)
    return {
        "hashes": [each.hex() for each in hashes],
        "void": void_hash(context, case["reason"]).hex(),
        "closing": past.closing.hex(),
    }


def context(case: Case) -> Case:
    """Every hash that follows from roster, manifest and opening."""
    roster, manifest, opening = (
        parse(bytes.fromhex(case[name])) for name in ("roster", "manifest", "opening")
    )
    assert isinstance(roster, Roster)
    assert isinstance(manifest, Manifest)
    assert isinstance(opening, Opening)
    return {
        "roster_hash": roster.hash.hex(),
        "cohort": manifest.cohort.hex(),
        "beacon": manifest.beacon.hex(),
        "manifest_hash": manifest.hash.hex(),
        "chain": extend_chain(EMPTY_CHAIN, opening.links).hex(),
        "terms_hash": opening.terms.hash.hex(),
        "layout_hash": opening.terms.layout_hash.hex(),
        "exceptions_hash": opening.exceptions_hash.hex(),
        "context": Attempt(roster, manifest, opening).context.hex(),
    }


def upload(case: Case) -> Case:
    announced = Upload.from_bytes(bytes.fromhex(case["upload"]))
    roots = {
        "chunk_root": Tree.of(announced.chunk_digests).root,
        "commitment_root": commitment_tree(announced.secret_commitments, announced.share_rows).root,
        "box_root": Tree.of(announced.boxes).root,
    }
    assert all(getattr(announced.header, name) == root for name, root in roots.items())
    announced.header.verify(bytes.fromhex(case["public"]))
    return {name: root.hex() for name, root in roots.items()} | {"digest": announced.header.digest.hex()}


def signed(case: Case) -> Case:
    key = SigningKey(bytes.fromhex(case["seed"]))
    return {"public": key.public.hex(), "signature": key.sign(bytes.fromhex(case["digest"])).hex()}


def attempt_of(case: Case) -> Attempt:
    roster, manifest, opening = (
        parse(bytes.fromhex(case[name])) for name in ("roster", "manifest", "opening")
    )
    return Attempt(roster, manifest, opening)  # type: ignore[arg-type]  # they are these


def certificate(case: Case) -> Case:
    found = Certificate.from_bytes(bytes.fromhex(case["certificate"]))
    attempt = attempt_of(case)
    attempt.check_certificate(found)
    return {"outcome": found.outcome.hex(), "link": attempt.link(found.past).encode_fields().hex()}


def due(case: Case) -> Case:
    attempt = attempt_of(case)
    found = {dealer: due_secrets(attempt, dealer, set(case["staying"])) for dealer in case["staying"]}
    return {"due": {dealer: [each.index for each in secrets] for dealer, secrets in found.items()}}


def eviction(case: Case) -> Case:
    attempt = attempt_of(case)
    found = Certificate.from_bytes(bytes.fromhex(case["certificate"]))
    evictions = Evictions.from_bytes(bytes.fromhex(case["evictions"]))
    proofs: tuple[Proof, ...] = evictions.proofs
    for proof in proofs:
        check_proof(attempt, found, proof)
    return {"evicted": list(evictions.evicted)}


def record(case: Case) -> Case:
    read = ResultRecord.model_validate_json(json.dumps(case["record"]))
    return {"body": record_body(read).decode(), "digest": record_digest(read).hex()}


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    "pair-key": pair_key,
    "ratchet": ratchet,
    "mask-seed": mask_seed,
    "box-key": box_key,
    "commitment": commitment,
    "hash": hashed,
    "merkle": merkle,
    "merkle-path": merkle_path,
    "keystream": keystream,
    "pack": packed,
    "unpack": unpacked,
    "masked": masked,
    "box": box,
    "open-box": open_box,
    "deal": deal,
    "recover": recover,
    "ring": ring,
    "window": window,
    "sizes": sizes,
    "cover": cover,
    "ledger": ledger,
    "ledger-exposed": exposed,
    "outcomes": outcomes,
    "context": context,
    "upload": upload,
    "signed": signed,
    "certificate": certificate,
    "due": due,
    "eviction": eviction,
    "record": record,
    "transcript": transcripts.replayed,
    "result": results.read,
}
