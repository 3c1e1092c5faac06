"""The vectors' functions in `protocol`, from a case's JSON inputs to its outputs."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from assurance.vectors.invited import play_invitations, show_missed
from assurance.vectors.ledger_player import play_ledger
from client_sdk.records import Marks, Records, Selection, select_canaries, select_held_out, select_rows
from client_sdk.reservations import run_mu
from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol.attempt import Attempt, cohort_sizes
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.counting import check_counts, withheld_classes
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.graph import Graph, draw_committee
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.keys import (
    AgreementKey,
    DecapsulationKey,
    PairKey,
    PairSecret,
    check_mlkem_key,
    hash_ciphertext,
    hash_mlkem_key,
)
from veilsum.protocol.keystream import Masks
from veilsum.protocol.merkle import Tree, verify_path
from veilsum.protocol.messages import (
    EMPTY_CHAIN,
    Certificate,
    Ciphertexts,
    Entry,
    Link,
    Manifest,
    Opening,
    Pairing,
    Proof,
    Roster,
    Study,
    Survivor,
    cohort_id,
    edge_commitment,
    extend_chain,
    parse_message,
    self_commitment,
    share_commitment,
    survivors_hash,
    void_hash,
)
from veilsum.protocol.messages.outcome import Evictions
from veilsum.protocol.packing import PackingError, add_packed, pack_words, unpack_words
from veilsum.protocol.pairing import check_ciphertexts, recipients_of, senders_to
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.record import ResultRecord, record_body, record_digest
from veilsum.protocol.reveal_plan import due_secrets
from veilsum.protocol.ring import Ring
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.sealing import seal_box, unseal_box
from veilsum.protocol.shamir import ShareError, recover_secrets, share_secrets
from veilsum.protocol.study import Content, read_content
from veilsum.protocol.tags import Tag, hash_fields
from veilsum.study import result_files, vectors
from veilsum.study.canaries import fetched_pack
from veilsum.study.judging import judge_mechanism, noiseless_tables, read_shown
from veilsum.study.promise import check_noise, mechanism_of

Case = Mapping[str, Any]
EXAMPLE = simulated_content(simulated_question(12), 10**6)
TAGS = {tag.value.decode().split("/")[2].rstrip("\0"): tag for tag in Tag}


def run(function: str, case: Case) -> Case:
    """Return the case's `output` or `refused`, as the vector files have it."""
    try:
        return {"output": FUNCTIONS[function](case)}
    except PeerFault as fault:
        return {"refused": fault.cause.value}
    except Misuse:
        return {"refused": "local"}
    except PackingError:
        return {"refused": Cause.CHUNK_MISMATCH.value}
    except ShareError:
        return {"refused": Cause.SHARE_INVALID.value}


def raw(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def agree(case: Case) -> Case:
    private, public = raw(case, "private", "public")
    return {"shared": AgreementKey(private).agree_secret(public, "owner").hex()}


def root_key(case: Case) -> Case:
    """Return K_0 of a pair (wire: Keys)."""
    x25519, mlkem = map(SecretBytes, raw(case, "x25519", "mlkem"))
    key_hash, ciphertext, cohort, manifest = raw(case, "hash", "ciphertext", "cohort", "manifest_hash")
    pair = PairSecret(case["from"], case["to"], x25519, mlkem, key_hash, hash_ciphertext(ciphertext))
    return {"key": pair.derive_root(TAGS[case["purpose"]], cohort, manifest).hex()}


def ratchet(case: Case) -> Case:
    key, cohort = raw(case, "key", "cohort")
    return {"key": PairKey("peer", key).ratchet_to(cohort, int(case["sequence"])).key.hex()}


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


def mlkem_key(case: Case) -> Case:
    return {"key": DecapsulationKey(*raw(case, "seed")).public.hex()}


def mlkem_check(case: Case) -> Case:
    (key,) = raw(case, "key")
    check_mlkem_key(key, "owner")
    return {"hash": hash_mlkem_key(key).hex()}


def mlkem_decapsulate(case: Case) -> Case:
    seed, ciphertext = raw(case, "seed", "ciphertext")
    key = DecapsulationKey(seed)
    try:
        return {"shared": key.decapsulate(ciphertext).hex()}
    except ValueError as error:
        raise PeerFault(Cause.MALFORMED, "a ciphertext has 1,088 bytes") from error


def hashed(case: Case) -> Case:
    return {"hash": hash_fields(TAGS[case["tag"]], *map(bytes.fromhex, case["fields"])).hex()}


def merkle(case: Case) -> Case:
    tree = Tree(map(bytes.fromhex, case["leaves"]))
    paths = [[each.hex() for each in tree.path_to(index)] for index in range(tree.count)]
    return {"root": tree.root.hex(), "paths": paths}


def merkle_path(case: Case) -> Case:
    root, leaf = raw(case, "root", "leaf")
    path = [bytes.fromhex(each) for each in case["path"]]
    return {"holds": verify_path(root, leaf, case["index"], case["count"], path)}


def keystream(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = np.zeros(case["count"], ring.dtype)
    Masks(ring, added=[bytes.fromhex(case["seed"])]).apply_to_chunk(words, case["offset"])
    return {"words": [str(int(word) & ring.mask) for word in words]}


def pack(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = ring.to_ring(np.array([int(each) for each in case["elements"]], np.int64))
    return {"packed": bytes(pack_words(words, ring.bits)).hex()}


def unpack(case: Case) -> Case:
    ring, data = Ring(case["bits"]), bytes.fromhex(case["packed"])
    words = unpack_words(data, ring.bits, case["count"])
    total = np.zeros(case["count"], ring.dtype)
    add_packed(total, data, ring.bits)
    assert (ring.lift_signed(total) == ring.lift_signed(words)).all()
    return {
        name: [str(each) for each in found.tolist()]
        for name, found in (("words", words), ("centred", ring.lift_signed(words)))
    }


def masked(case: Case) -> Case:
    ring = Ring(case["bits"])
    words = ring.to_ring(np.array([int(each) for each in case["elements"]], np.int64))
    seeds = {sign: [bytes.fromhex(seed) for seed in case[sign]] for sign in ("added", "subtracted")}
    Masks(ring, **seeds).apply_to_chunk(words, case["offset"])
    return {"packed": bytes(pack_words(words, ring.bits)).hex()}


def box(case: Case) -> Case:
    return {"box": seal_box(*raw(case, "key", "shares", "context")).hex()}


def open_box(case: Case) -> Case:
    key, sealed, context = raw(case, "key", "box", "context")
    return {"shares": unseal_box(key, sealed, context, "dealer").hex()}


def deal(case: Case) -> Case:
    """Deal with the coefficients that `share_secrets` draws, degree by degree."""
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
        "neighbours": {member: list(graph.neighbours_of(member)) for member in case["of"]},
        "committee": list(draw_committee(beacon, members, case["committee"])),
    }


def pairs(case: Case) -> Case:
    """Return to whom, and from whom, members encapsulate (wire: Cohorts)."""
    members = tuple(f"m-{i:05}" for i in range(case["members"]))
    hashes = {name: bytes.fromhex(case[name]) for name in ("cohort", "cards_root")}
    hashes |= dict.fromkeys(("roster_hash", "study", "repeats"), bytes(32))
    numbers = ("counter", "decryptor_colluders", "survivors_min", "threshold", "window_dropped_max")
    values: dict[str, Any] = hashes | dict.fromkeys(numbers, 0)
    decryptors = tuple(case["decryptors"]) or members
    manifest = Manifest(**values, period="", members=members, degree=case["degree"], decryptors=decryptors)
    return {
        "to": {member: list(recipients_of(manifest, member)) for member in case["of"]},
        "from": {member: list(senders_to(manifest, member)) for member in case["of"]},
    }


def window(case: Case) -> Case:
    members = [f"m-{i:05}" for i in range(case["members"])]
    graph = Graph(members, case["degree"], bytes.fromhex(case["beacon"]))
    found = graph.window_excess(case["lost"], case["dropped_max"])
    return {"exceeded_by": None if found is None else list(found)}


def sizes(case: Case) -> Case:
    everyone, key = [f"m-{i:05}" for i in range(case["roster"])], bytes(32)
    roster = Roster(
        number=1,
        name="",
        federation=key,
        coordinator=key,
        study_key=key,
        members=tuple(Entry(member, key) for member in everyone),
        decryptors=tuple(everyone[: case["nominated"]]),
        readers=(),
        revoked=(),
        signature=bytes(64),
    )
    members = everyone[: case["members"]]
    assumed = {name: case[name] for name in ("a", "h_min", "loss", "members_min")}
    question = read_content(EXAMPLE.to_bytes()).question.model_copy(update=assumed)
    found = cohort_sizes(roster, question, members, repeats=case["repeats"])
    quorum = found.quorum
    return {
        "committee": found.committee.value,
        "decryptors": quorum.decryptors,
        "a_D": quorum.decryptor_colluders,
        "n_min": quorum.survivors_min,
        "t": quorum.threshold,
        "q": quorum.erasures_min,
        "k": found.degree,
        "D_max": found.window_dropped_max,
    }


def cover(case: Case) -> Case:
    disputes = [Dispute(Cause(each["cause"]), *each["parties"]) for each in case["disputes"]]
    return {"dropped": sorted(vertex_cover(bytes.fromhex(case["context"]), disputes, case["a"]))}


def outcomes(case: Case) -> Case:
    """Return the hashes of an attempt's possible ends, and the chain with its link."""
    context, chain = raw(case, "context", "chain")
    survivors = tuple(Survivor(each["member"], bytes.fromhex(each["digest"])) for each in case["survivors"])
    fields: dict[str, Any] = {name: case[name] for name in ("attempt", "period", "step", "reason")}
    fields["sequence"] = int(case["sequence"])
    fields |= {name: bytes.fromhex(case[name]) for name in ("cohort", "question", "repeats")}
    certified = survivors_hash(context, survivors) if survivors else bytes(32)
    link = Link(**fields, context=context, survivors=certified)
    link.check_fields()
    return {
        "survivors_hash": survivors_hash(context, survivors).hex() if survivors else None,
        "void": void_hash(context, case["reason"]).hex(),
        "link": link.encode().hex(),
        "chain": extend_chain(chain, (link,)).hex(),
    }


def study(case: Case) -> Case:
    """Return what follows from a study's content (wire: Studies)."""
    content = Content.from_bytes(case["content"].encode())
    question = content.question
    return {
        "question": question.digest.hex(),
        "approval": content.approval.hex(),
        "scale": question.scale if question.noise is None else None,
        "width": question.width,
        "steps": [[step, question.elements_of(step)] for step in question.steps],
    }


def signed_study(case: Case) -> Case:
    """Sign a study with its federation's study key."""
    seed, federation = raw(case, "seed", "federation")
    study = Study.make_signed(SigningKey(seed), federation=federation, content=case["content"].encode())
    return {"study": study.to_bytes().hex(), "hash": study.hash.hex()}


def cohort(case: Case) -> Case:
    """Return a cohort's id (wire: Cohorts)."""
    roster, study, repeats = raw(case, "roster_hash", "study", "repeats")
    found = cohort_id(roster, int(case["counter"]), study, case["period"], repeats)
    return {"cohort": found.hex()}


def spec_of(case: Case, step: str, withheld: tuple[int, ...] = ()) -> RoundSpec:
    content = read_content(case["content"].encode())
    return RoundSpec(content, bytes(32), "", step, withheld, 0, 0, 1 << 20)


def vector(case: Case) -> Case:
    """Return an exact sum's vector of these rows (member: Exact vectors)."""
    spec = spec_of(case, "sum", tuple(case["withheld"]))
    rows, labels = np.array(case["rows"], np.float64), np.array(case["labels"], np.int64)
    made = vectors.compute_vector(spec, rows.reshape(len(labels), spec.question.dim), labels)
    return {"elements": made.tolist()}


def noisy_vector(case: Case) -> Case:
    """Return a noisy step's vector before its noise, and the variances of a member's noise (member: Noise)."""
    content = read_content(case["content"].encode())
    spec = RoundSpec(content, bytes(32), "", case["step"], (), case["members"], case["n_min"], 1 << 20)
    rows, labels = np.array(case["rows"], np.float64), np.array(case["labels"], np.int64)
    material = {name: np.array(values, np.float64) for name, values in case["material"].items()}
    assert {name: array.shape for name, array in material.items()} == result_files.material_shapes(spec)
    matrix = rows.reshape(len(labels), spec.question.dim)
    shares = mechanism_of(spec).shares
    return {
        "elements": vectors.noiseless_vector(spec, matrix, labels, material).tolist(),
        "variances": sorted(
            {float(f"{v:.12g}") for share in shares for v in (share.variance, share.diagonal)}
        ),
    }


def material(case: Case) -> Case:
    """Read a step's material (NOISE-3)."""
    content = read_content(case["content"].encode())
    spec = RoundSpec(content, bytes(32), "", case["step"], (), 0, 0, 1 << 20)
    arrays = result_files.read_material(spec, bytes.fromhex(case["file"]))
    return {"material": {name: arrays[name].tolist() for name in sorted(arrays)}}


def noise_fits(case: Case) -> Case:
    """Check the noise of a study in a cohort (NOISE-1)."""
    check_noise(read_content(case["content"].encode()).question, case["members"], case["n_min"])
    return {}


def record_id(case: Case) -> Case:
    secret, federation = raw(case, "secret", "federation")
    ids = None if case["id"] is None else [bytes.fromhex(case["id"])]
    (name,) = Records([[1.0]], [0], ids).keys
    marks = Marks(secret, federation, case["held_out"])
    return {"id": name.hex(), "key": marks.mark_record(name).hex(), "held_out": marks.is_held_out(name)}


def selection(case: Case) -> Case:
    """Return the rows that a run takes, and whether the member's answer is yes (member: Selection)."""
    question = read_content(case["content"].encode()).question
    records, marks, free = selectable(case)
    found = select_rows(records, question, marks, free)
    enough = len(found.labels) >= question.records.least and vectors.rows_bear_sum(
        question, found.features, found.labels
    )
    return list_selected(found, records, marks) | {"yes": question.noise is not None or enough}


def rehearsed(case: Case) -> Case:
    """Return the rows that a rehearsal adds up (periods: Rehearsals)."""
    question = read_content(case["content"].encode()).question
    found = select_canaries(records_of(case), question)
    assert not found.records
    return {"rows": found.features.tolist(), "labels": found.labels.tolist()}


def judged(case: Case) -> Case:
    """Return the rows that a judgement scores (periods: Judgements)."""
    question = read_content(case["content"].encode()).question
    records, marks, free = selectable(case)
    found = select_held_out(records, question, marks, case["period"], free)
    return list_selected(found, records, marks) | {"yes": run_mu(question, PeriodKind.JUDGE) > 0}


def selectable(case: Case) -> tuple[Records, Marks, Callable[[Sequence[bytes]], set[bytes]]]:
    """Return a member's records, its marks, and what says which of some keys are not taken."""
    secret, federation = raw(case, "secret", "federation")
    taken = {bytes.fromhex(each) for each in case["taken"]}
    return records_of(case), Marks(secret, federation, case["held_out"]), lambda keys: {*keys} - taken


def list_selected(found: Selection, records: Records, marks: Marks) -> dict[str, Any]:
    ranks = {rank.tobytes() for rank in found.ranks}
    return {
        "selected": [row for row, rank in enumerate(marks.rank_rows(records)) if rank in ranks],
        "keys": [each.hex() for each in found.records],
    }


def records_of(case: Case) -> Records:
    return Records(np.array(case["rows"], np.float64), np.array(case["labels"], np.int64), case["ids"])


def canaries(case: Case) -> Case:
    """Compare a member's canaries with the pack that a coordinator shows (CANARY-2 to CANARY-5)."""
    content = read_content(case["content"].encode())
    pack = fetched_pack(content, bytes.fromhex(case["pack"]))
    if (found := records_of(case).check_canaries(content, pack)).findings:
        raise PeerFault(Cause.CANARIES_DIFFER, found.describe())
    return {}


def judge_tables(case: Case) -> Case:
    """Return a judgement's tables before noise, and the variance of a member's noise (periods: Judgements)."""
    question = read_content(case["content"].encode()).question
    arrays = {name: np.array(values, np.float64) for name, values in case["material"].items()}
    rows, labels = np.array(case["rows"], np.float64), np.array(case["labels"], np.int64)
    flat = noiseless_tables(
        question, read_shown(question, save(arrays)), rows.reshape(len(labels), question.dim), labels
    )
    largest = judge_mechanism(question, case["members"], case["n_min"]).largest
    return {"elements": flat.tolist(), "variance": float(f"{largest:.12g}")}


def judge_material(case: Case) -> Case:
    """Read the heads that a judgement shows (PERIOD-5)."""
    content, file = read_content(case["content"].encode()), bytes.fromhex(case["file"])
    result_files.check_material_digest(file, bytes.fromhex(case["digest"]))
    read_shown(content.question, file)
    return {"material": {name: array.tolist() for name, array in sorted(load(file).items())}}


def count(case: Case) -> Case:
    """Return a count's vector (member: Count vectors)."""
    spec, labels = spec_of(case, "count"), np.array(case["labels"], np.int64)
    rows = np.array(case["rows"], np.float64).reshape(len(labels), spec.question.dim)
    return {"elements": vectors.compute_vector(spec, rows, labels).tolist()}


def rare(case: Case) -> Case:
    """Return the classes that these counts withhold, if they allow a sum (OPEN-24)."""
    question = read_content(case["content"].encode()).question
    check_counts(question, case["holders"], case.get("reached"))
    return {"withheld": list(withheld_classes(question, case["holders"]))}


def reach(case: Case) -> Case:
    """Return the vector of the step `rows` (member: Count vectors)."""
    spec, labels = spec_of(case, "rows", tuple(case["withheld"])), np.array(case["labels"], np.int64)
    rows = np.array(case["rows"], np.float64).reshape(len(labels), spec.question.dim)
    return {"elements": vectors.compute_vector(spec, rows, labels).tolist()}


def directions(case: Case) -> Case:
    """Return the directions of random features (member: Exact vectors)."""
    phi = vectors.random_features(read_content(case["content"].encode()).question)
    assert phi is not None
    return {"directions": phi.directions.tolist()}


def context(case: Case) -> Case:
    """Return every hash that follows from roster, manifest and opening."""
    roster, study, manifest, opening = (
        parse_message(bytes.fromhex(case[name])) for name in ("roster", "study", "manifest", "opening")
    )
    assert isinstance(roster, Roster)
    assert isinstance(study, Study)
    assert isinstance(manifest, Manifest)
    assert isinstance(opening, Opening)
    return {
        "roster_hash": roster.hash.hex(),
        "study": study.hash.hex(),
        "cohort": cohort_id(
            roster.hash, manifest.counter, study.hash, manifest.period, manifest.repeats
        ).hex(),
        "beacon": manifest.beacon.hex(),
        "manifest_hash": manifest.hash.hex(),
        "chain": extend_chain(EMPTY_CHAIN, opening.links).hex(),
        "terms_hash": opening.terms.hash.hex(),
        "context": Attempt(roster, study, manifest, opening).context.hex(),
    }


def pairing(case: Case) -> Case:
    """Return the root that a member signed, what it signed, and the path of each ciphertext (wire: Cohorts)."""
    made = Pairing.from_bytes(bytes.fromhex(case["pairing"]))
    made.verify(bytes.fromhex(case["public"]), made.member)
    paths = [[each.hex() for each in made.tree.path_to(place)] for place in range(len(made.ciphertexts))]
    return {"root": made.tree.root.hex(), "digest": made.digest.hex(), "paths": paths}


def ciphertexts(case: Case) -> Case:
    """Return whose ciphertexts a member takes (wire: Cohorts)."""
    roster, manifest = (
        Roster.from_bytes(bytes.fromhex(case["roster"])),
        Manifest.from_bytes(bytes.fromhex(case["manifest"])),
    )
    shown = Ciphertexts.from_bytes(bytes.fromhex(case["ciphertexts"]))
    check_ciphertexts(roster, manifest, case["member"], shown)
    return {"from": [each.member for each in shown.shown]}


def signed(case: Case) -> Case:
    key = SigningKey(bytes.fromhex(case["seed"]))
    return {"public": key.public.hex(), "signature": key.sign(bytes.fromhex(case["digest"])).hex()}


def verify(case: Case) -> Case:
    public, signature, digest = raw(case, "public", "signature", "digest")
    verify_signature(public, signature, digest, "signer")
    return {}


def attempt_of(case: Case) -> Attempt:
    roster, study, manifest, opening = (
        parse_message(bytes.fromhex(case[name])) for name in ("roster", "study", "manifest", "opening")
    )
    return Attempt(roster, study, manifest, opening)  # type: ignore[arg-type]  # messages of these types


def certificate(case: Case) -> Case:
    found = Certificate.from_bytes(bytes.fromhex(case["certificate"]))
    attempt = attempt_of(case)
    attempt.check_certificate(found)
    return {"outcome": found.outcome.hex(), "link": attempt.make_link(found).encode().hex()}


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


def transcript(case: Case) -> Case:
    from assurance.vectors import transcripts  # noqa: PLC0415 - it depends on the rounds

    return transcripts.replayed(case)


def result(case: Case) -> Case:
    from assurance.vectors import results  # noqa: PLC0415 - as above

    return results.read(case)


def head(case: Case) -> Case:
    from assurance.vectors import heads  # noqa: PLC0415 - as above

    return heads.read_head(case)


def solution(case: Case) -> Case:
    from assurance.vectors import heads  # noqa: PLC0415 - as above

    return heads.read_sum(case)


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        agree, root_key, ratchet, mask_seed, box_key, commitment, mlkem_key, mlkem_check, mlkem_decapsulate,
        merkle, merkle_path, keystream, pack, unpack, masked, box, open_box, deal, recover, ring, pairs,
        window, sizes, cover, outcomes, study, signed_study, cohort, vector, noisy_vector, material,
        noise_fits, record_id, selection, rehearsed, canaries, judged, judge_tables, judge_material, count,
        rare, directions, context, pairing, ciphertexts, signed, verify, certificate, due, eviction, record,
        transcript, result, head, solution,
    )
} | {"hash": hashed, "ledger": play_ledger, "invitations": play_invitations, "missed": show_missed, "rows": reach}  # fmt: skip
