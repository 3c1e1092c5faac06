"""The vectors' functions in the second implementation, which shares no code with `protocol`.

Each function maps a case's JSON inputs to its outputs; `Refused` carries the cause.
"""

import json
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from assurance.reference import heads, judging, mlkem, records, reference, study, wire
from assurance.reference.reference import Party
from assurance.reference.study import Study, canonical
from assurance.reference.wire import (
    H,
    M,
    P,
    Refused,
    decode,
    demand,
    encode,
    hkdf,
    outcome,
    raw,
    sign,
    signable,
    u,
)

Case = Mapping[str, Any]
Json = dict[str, Any]
HERE = Path(__file__).parent


def _bytes(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


# Keys


def agree(case: Case) -> Case:
    private, public = _bytes(case, "private", "public")
    return {"shared": reference.agree(X25519PrivateKey.from_private_bytes(private), public).hex()}


def root_key(case: Case) -> Case:
    x25519, secret, key_hash, ciphertext = _bytes(case, "x25519", "mlkem", "hash", "ciphertext")
    cohort, manifest = _bytes(case, "cohort", "manifest_hash")
    made_of = (cohort, case["from"], case["to"], key_hash, H("ciphertext", ciphertext))
    return {"key": hkdf(x25519 + secret, manifest, case["purpose"], *made_of).hex()}


def ratchet(case: Case) -> Case:
    key, cohort = _bytes(case, "key", "cohort")
    return {"key": hkdf(key, b"", "ratchet", cohort, u(64, int(case["sequence"]))).hex()}


def mask_seed(case: Case) -> Case:
    key, context = _bytes(case, "key", "context")
    return {"seed": hkdf(key, context, "mask-seed", case["low"], case["high"]).hex()}


def box_key(case: Case) -> Case:
    key, context, salt = _bytes(case, "key", "context", "salt")
    return {"key": hkdf(key, context + salt, "box-key", case["dealer"], case["decryptor"]).hex()}


def commitment(case: Case) -> Case:
    context, secret = _bytes(case, "context", "secret")
    index = [u(32, case["index"])] if "index" in case else []
    return {"commitment": H(case["purpose"], context, *case["members"], *index, secret)[:16].hex()}


# ML-KEM-768


def mlkem_key(case: Case) -> Case:
    return {"key": mlkem.generate(*_bytes(case, "seed"))[0].hex()}


def mlkem_check(case: Case) -> Case:
    (key,) = _bytes(case, "key")
    demand(mlkem.is_key(key), "mlkem-key-invalid")
    return {"hash": H("mlkem-key", key).hex()}


def mlkem_decapsulate(case: Case) -> Case:
    seed, ciphertext = _bytes(case, "seed", "ciphertext")
    demand(len(ciphertext) == mlkem.CIPHERTEXT_BYTES, "malformed")
    return {"shared": mlkem.decapsulate(mlkem.generate(seed)[1], ciphertext).hex()}


def mlkem_encapsulate(case: Case) -> Case:
    shared, ciphertext = mlkem.encapsulate(*_bytes(case, "key", "message"))
    return {"ciphertext": ciphertext.hex(), "shared": shared.hex()}


# Hashes


def hashed(case: Case) -> Case:
    """Return H over fields, taken as they are."""
    return {"hash": H(case["tag"], *map(bytes.fromhex, case["fields"])).hex()}


def merkle(case: Case) -> Case:
    leaves = [bytes.fromhex(leaf) for leaf in case["leaves"]]
    paths = [wire.tree(leaves, index)[1] for index in range(len(leaves))]
    return {"root": wire.root(leaves).hex(), "paths": [[each.hex() for each in path] for path in paths]}


def merkle_path(case: Case) -> Case:
    """Return whether a path is valid."""
    index, count, path = case["index"], case["count"], [bytes.fromhex(each) for each in case["path"]]
    holds = (
        0 <= index < count
        and wire.climb(bytes.fromhex(case["leaf"]), index, count, path).hex() == case["root"]
    )
    return {"holds": holds}


# Masks, packing, boxes


def keystream(case: Case) -> Case:
    words = [0] * (case["offset"] + case["count"])
    wire.mask(words, case["bits"], 1, bytes.fromhex(case["seed"]))
    return {"words": [str(word % 2 ** case["bits"]) for word in words[case["offset"] :]]}


def pack(case: Case) -> Case:
    return {"packed": wire.pack([int(each) for each in case["elements"]], case["bits"]).hex()}


def unpack(case: Case) -> Case:
    bits, count, packed = case["bits"], case["count"], bytes.fromhex(case["packed"])
    words = wire.unpack(packed, count, bits)
    if wire.pack(words, bits) != packed:
        raise Refused("chunk-mismatch")
    centred = [w - 2**bits if w >> (bits - 1) else w for w in words]
    return {"words": [str(w) for w in words], "centred": [str(w) for w in centred]}


def masked(case: Case) -> Case:
    """Return a packed chunk: its elements, plus or minus each seed's keystream."""
    sums = [0] * case["offset"] + [int(each) for each in case["elements"]]
    for sense, seeds in ((1, case["added"]), (-1, case["subtracted"])):
        for seed in seeds:
            wire.mask(sums, case["bits"], sense, bytes.fromhex(seed))
    return pack({"bits": case["bits"], "elements": sums[case["offset"] :]})


def box(case: Case) -> Case:
    key, shares, context = _bytes(case, "key", "shares", "context")
    return {"box": AESGCM(key).encrypt(bytes(12), shares, context).hex()}


def open_box(case: Case) -> Case:
    key, sealed, context = _bytes(case, "key", "box", "context")
    try:
        return {"shares": AESGCM(key).decrypt(bytes(12), sealed, context).hex()}
    except (InvalidTag, ValueError) as error:
        raise Refused("box-refused") from error


# Shamir


def deal(case: Case) -> Case:
    rows = case["coefficients"]  # degree 1 first, nine a secret
    dealt = []
    for place, secret in enumerate(case["secrets"]):
        drawn = iter([row[9 * place + limb] for limb in range(9) for row in rows])
        dealt.append(
            wire.split(bytes.fromhex(secret), 1 + len(rows), case["holders"], lambda drawn=drawn: next(drawn))
        )
    return {"shares": [[share.hex() for share in shares] for shares in zip(*dealt, strict=True)]}


def recover(case: Case) -> Case:
    positions, shares = case["positions"], [bytes.fromhex(share) for share in case["shares"]]
    if len(set(positions)) != len(positions) or any(len(share) != 36 for share in shares):
        raise Refused("share-invalid")
    if any(word >= P for share in shares for word in wire.unpack(share, 9, 32)):
        raise Refused("share-invalid")
    secret = wire.recover({position + 1: share for position, share in zip(positions, shares, strict=True)})
    if not secret:
        raise Refused("share-invalid")
    return {"secret": secret.hex()}


# # Order, committee, sizes


def names(case: Case) -> list[str]:
    return [f"m-{i:05}" for i in range(case["members"])]


def ring(case: Case) -> Case:
    beacon, everyone = bytes.fromhex(case["beacon"]), names(case)
    order = sorted(everyone, key=lambda member: H("ring", beacon, member))
    half, count = case["degree"] // 2, len(order)

    def near(member: str) -> list[str]:
        at = order.index(member)
        return sorted(order[(at + step) % count] for step in range(-half, half + 1) if step)

    chosen = sorted(everyone, key=lambda member: H("committee", beacon, member))
    return {
        "order": [everyone.index(member) for member in order],
        "neighbours": {member: near(member) for member in case["of"]},
        "committee": sorted(chosen[: case["committee"]]),
    }


def pairs(case: Case) -> Case:
    cohort, cards_root = _bytes(case, "cohort", "cards_root")
    everyone, none = tuple(names(case)), bytes(32)
    decryptors = tuple(case["decryptors"]) or everyone
    m = M.Manifest(
        cohort, none, 0, none, "", none, everyone, cards_root, 0, 0, 0, case["degree"], 0, decryptors
    )
    return {
        "to": {member: list(reference.recipients(m, member)) for member in case["of"]},
        "from": {member: list(reference.senders(m, member)) for member in case["of"]},
    }


def cover(case: Case) -> Case:
    """Return all smallest covers, and their size. Which of them is dropped depends on the specification's order."""
    disputes = [tuple(each["parties"]) for each in case["disputes"]]
    everyone = sorted({party for pair in disputes for party in pair})
    for size in range(len(everyone) + 1):
        covers = [set(c) for c in combinations(everyone, size) if all({*c} & {*pair} for pair in disputes)]
        if covers:
            return {"size": size, "covers": [sorted(each) for each in covers]}
    raise AssertionError(case)


def signed(case: Case) -> Case:
    """Return an Ed25519 signature over a digest."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["seed"]))
    return {
        "public": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(bytes.fromhex(case["digest"])).hex(),
    }


def record(case: Case) -> Case:
    body = canonical(case["record"])
    return {"body": body.decode(), "digest": H("result", body).hex()}


# Studies, vectors and contexts


def read(case: Case) -> Study:
    return Study(case["content"].encode())


def studied(case: Case) -> Case:
    content = read(case)
    return {
        "question": content.digest.hex(),
        "approval": content.approval.hex(),
        "scale": content.scale if content.noise is None else None,
        "width": max(content.widths),
        "steps": [[step, content.elements_of(step)] for step in content.steps],
    }


def verify(case: Case) -> Case:
    demand(wire.is_signature(*_bytes(case, "public", "signature", "digest")), "bad-signature")
    return {}


def signed_study(case: Case) -> Case:
    seed, federation = _bytes(case, "seed", "federation")
    made = sign(Ed25519PrivateKey.from_private_bytes(seed), "Study", federation, case["content"].encode())
    return {"study": encode(made).hex(), "hash": signable(made).hex()}


def cohort(case: Case) -> Case:
    roster, named, repeats = _bytes(case, "roster_hash", "study", "repeats")
    return {"cohort": H("cohort", roster, u(64, int(case["counter"])), named, case["period"], repeats).hex()}


def vector(case: Case) -> Case:
    return {"elements": read(case).vector(case["rows"], case["labels"], case["withheld"])}


def noisy_vector(case: Case) -> Case:
    content, step = read(case), case["step"]
    return {
        "elements": records.noiseless(content, step, case["rows"], case["labels"], case["material"]),
        "variances": sorted(float(f"{each:.12g}") for each in content.variances(step, case["n_min"])),
    }


def record_id(case: Case) -> Case:
    secret, federation = _bytes(case, "secret", "federation")
    name = b"" if case["id"] is None else records.identifier(bytes.fromhex(case["id"]))
    key = records.key(secret, federation, name)
    return {
        "id": name.hex(),
        "key": key.hex(),
        "held_out": records.held_out(secret, federation, name, case["held_out"]),
    }


def selection(case: Case) -> Case:
    content, ids = read(case), case["ids"]
    secret, federation, *taken = map(bytes.fromhex, (case["secret"], case["federation"], *case["taken"]))
    names = None if ids is None else [records.identifier(each.encode()) for each in ids]
    rows, labels = case["rows"], case["labels"]
    chosen = records.select(content, rows, labels, names, secret, federation, taken, case["held_out"])
    own = [rows[place] for place in chosen], [labels[place] for place in chosen]
    n_min = study.sizes(content, content.members, content.members)[1]
    of_ids = {b"" if names is None else names[place] for place in chosen}
    return {
        "selected": chosen,
        "keys": sorted(records.key(secret, federation, each).hex() for each in of_ids),
        "yes": content.noise is not None or (len(chosen) >= content.least and content.bears(*own, n_min)),
    }


def rehearsed(case: Case) -> Case:
    content, rows, labels = read(case), case["rows"], case["labels"]
    chosen = records.canaries(
        content, rows, labels, [records.identifier(each.encode()) for each in case["ids"]]
    )
    return {"rows": [rows[place] for place in chosen], "labels": [labels[place] for place in chosen]}


def canaries(case: Case) -> Case:
    content = Study(case["content"].encode())
    ids = [records.identifier(each.encode()) for each in case["ids"]]
    records.check_canaries(content, bytes.fromhex(case["pack"]), case["rows"], case["labels"], ids)
    return {}


def judged(case: Case) -> Case:
    secret, federation, *taken = map(bytes.fromhex, (case["secret"], case["federation"], *case["taken"]))
    names = [records.identifier(each.encode()) for each in case["ids"]]
    chosen = records.judged(
        read(case),
        case["period"],
        case["rows"],
        case["labels"],
        names,
        secret,
        federation,
        taken,
        case["held_out"],
    )
    keys = {records.key(secret, federation, names[place]).hex() for place in chosen}
    return {"selected": chosen, "keys": sorted(keys), "yes": True}


def judge_tables(case: Case) -> Case:
    content = read(case)
    return {
        "elements": judging.noiseless(content, case["rows"], case["labels"], case["material"]),
        "variance": float(f"{judging.variance(content, case['n_min']):.12g}"),
    }


def judge_material(case: Case) -> Case:
    material = judging.read(read(case), bytes.fromhex(case["file"]), bytes.fromhex(case["digest"]))
    return {"material": {name: material[name] for name in sorted(material)}}


def count(case: Case) -> Case:
    return {"elements": read(case).count(case["rows"], case["labels"])}


def rare(case: Case) -> Case:
    content, holders = read(case), case["holders"]
    demand(content.enough_published(holders, case.get("reached", ())), "count-mismatch")
    return {"withheld": list(content.rare(holders))}


def reach(case: Case) -> Case:
    return {"elements": read(case).reach(case["rows"], case["labels"], case["withheld"])}


def sizes(case: Case) -> Case:
    numbers: Any = SimpleNamespace(
        a=case["a"], h=case["h_min"], loss=case["loss"], members=case["members_min"]
    )
    came = min(case["nominated"], case["members"])
    counts = case["members"], case["roster"], came, case["nominated"]
    a_d, n_min, t, k, d_max, decrypt = study.sizes(numbers, *counts, fresh=not case["repeats"])
    how = "nominated" if case["nominated"] else "everyone" if decrypt == case["members"] else "drawn"
    q = decrypt + a_d - t + 1
    made = {"committee": how, "decryptors": decrypt, "a_D": a_d, "n_min": n_min, "t": t, "q": q, "k": k}
    return made | {"D_max": d_max}


def outcomes(case: Case) -> Case:
    context, chain = _bytes(case, "context", "chain")
    survivors = tuple(M.Survivor(each["member"], bytes.fromhex(each["digest"])) for each in case["survivors"])
    demand(bool(survivors) == (case["reason"] == "none"), "malformed")
    chosen = outcome(context, "none", survivors) if survivors else bytes(32)
    cohort_id, question, repeats = _bytes(case, "cohort", "question", "repeats")
    place = (
        cohort_id,
        int(case["sequence"]),
        case["attempt"],
        question,
        case["period"],
        case["step"],
        repeats,
    )
    link = M.Link(*place, context, case["reason"], chosen)
    return {
        "survivors_hash": chosen.hex() if survivors else None,
        "void": H("void", context, case["reason"]).hex(),
        "link": raw(link).hex(),
        "chain": H("link", chain, link).hex(),
    }


def context(case: Case) -> Case:
    roster, signed, manifest, opening = _bytes(case, "roster", "study", "manifest", "opening")
    m, said = decode(manifest, "Manifest"), decode(opening, "Opening")
    party = Party(Ed25519PrivateKey.generate(), roster, signed, m.counter, m.period, m.repeats)
    party.settle(m)
    party.begin(said)
    chain = bytes(32)
    for link in said.links:
        chain = H("link", chain, link)
    return {
        "roster_hash": party.roster_hash.hex(),
        "study": party.study_hash.hex(),
        "cohort": party.cohort.hex(),
        "beacon": H("cards", party.cohort, m.cards_root).hex(),
        "manifest_hash": party.manifest_hash.hex(),
        "chain": chain.hex(),
        "terms_hash": H("terms", said.terms).hex(),
        "context": party.context.hex(),
    }


def pairing(case: Case) -> Case:
    made = decode(bytes.fromhex(case["pairing"]), "Pairing")
    demand(wire.signed(bytes.fromhex(case["public"]), made), "bad-signature")
    paths = [wire.tree(made.ciphertexts, place)[1] for place in range(len(made.ciphertexts))]
    return {
        "root": wire.root(made.ciphertexts).hex(),
        "digest": signable(made).hex(),
        "paths": [[each.hex() for each in path] for path in paths],
    }


def ciphertexts(case: Case) -> Case:
    roster, manifest, message = _bytes(case, "roster", "manifest", "ciphertexts")
    keys, m = dict(decode(roster, "Roster").members), decode(manifest, "Manifest")
    reference.check_ciphertexts(keys, m, case["member"], said := decode(message, "Ciphertexts"))
    return {"from": [each.member for each in said.shown]}


# # Readers of records


def result(case: Case) -> Case:
    """Return that the record follows. Raises `Refused` with result-mismatch if it doesn't."""
    said = dict(case["record"])
    document: Json = json.loads((HERE / f"round-{case['round']}.json").read_text("utf-8"))
    attempt: Json = document["attempts"][case["attempt"]]
    roster: Any = decode(bytes.fromhex(document["roster"]), "Roster")
    signature = bytes.fromhex(said.pop("signature"))
    digest = bytes.fromhex(record({"record": said})["digest"])
    demand(wire.is_signature(roster.coordinator, signature, digest), "bad-signature")
    study: Any = decode(bytes.fromhex(document["study"]), "Study")
    content, opened = Study(study.content), decode(bytes.fromhex(attempt["opening"]), "Opening")
    demand("survivors" in attempt and opened.terms.step not in {"count", "rows"}, "result-mismatch")
    shared: Json = {
        "format": "veilsum-result/5",
        "round": attempt["context"][:16],
        "context": attempt["context"],
        "federation": roster.federation.hex(),
        "study": signable(study).hex(),
        "name": content.name,
        "version": content.version,
        "step": opened.terms.step,
        "documents": [],
    }
    told = shared | _following(document, attempt, said, content)
    if (said["noise"] is None) != (content.noise is None):
        raise Refused("result-mismatch", ["noise"])
    if said | told != said or not 0 <= said["rows"] <= content.most * content.rostered:
        raise Refused("result-mismatch", [each for each in told if said[each] != told[each]])
    return {"holds": True}


def _said(document: Json, attempt: Json, kind: int) -> list[str]:
    """Return the distinct messages of this kind in an attempt."""
    begins = bytes([4, kind]).hex() + attempt["context"]
    texts = [document["messages"][index] for _, _, index in attempt["log"]]
    return list(dict.fromkeys(text for text in texts if text.startswith(begins)))


def _following(document: Json, attempt: Json, record: Json, content: Study) -> Json:
    """Return what a record of this round must contain."""
    opening = decode(bytes.fromhex(attempt["opening"]), "Opening")
    manifest, terms = decode(bytes.fromhex(document["cards"]), "Cards").manifest, opening.terms
    certificate = decode(bytes.fromhex(_said(document, attempt, 12)[0]), "Certificate")
    proofs = [decode(bytes.fromhex(text), "Evictions").proofs for text in _said(document, attempt, 15)]
    dropped = cover({"disputes": record["disputes"]})["covers"] if record["disputes"] else [[]]
    holders = record["holders"] if any(terms.count) else []
    if any(terms.count) and terms.withheld != content.rare(holders):
        raise Refused("result-mismatch", ["holders"])
    reached = record["reached"] if terms.withheld else []
    if holders and not content.enough_published(holders, reached):
        raise Refused("result-mismatch", ["reached"])
    same = [link for link in opening.links if link.question == content.digest and link.reason == "none"]
    return {
        "cohort": manifest.cohort.hex(),
        "period": manifest.period,
        "terms": H("terms", terms).hex(),
        "survivors_hash": outcome(certificate.context, "none", certificate.survivors).hex(),
        "survivors": [{"member": each.member, "digest": each.digest.hex()} for each in certificate.survivors],
        "dropped": record["dropped"] if record["dropped"] in dropped else dropped[0],
        "evicted": [proof.header.member for proof in (proofs[-1] if proofs else ())],
        "withheld": list(terms.withheld),
        "holders": holders,
        "reached": reached,
        "counts": [link.context.hex() for link in same if link.step in {"count", "rows"}],
        "head": None,
        "transcript": _head(attempt),
    }


def _head(attempt: Json) -> str:
    head = bytes(32)
    for entry in attempt["transcript"]["entries"]:
        head = H("transcript", head, bytes.fromhex(entry))
    return head.hex()


def head(case: Case) -> Case:
    file = case["head"] and bytes.fromhex(case["head"])
    heads.check_head(read(case), case, file)
    return {}


def solution(case: Case) -> Case:
    heads.check_sum(read(case), case["sum"], case["members"], case, bytes.fromhex(case["head"]))
    return {}


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        agree, root_key, ratchet, mask_seed, box_key, commitment, mlkem_key, mlkem_check, mlkem_decapsulate,
        mlkem_encapsulate, merkle, merkle_path, keystream, pack, unpack, masked, box, open_box, deal,
        recover, ring, pairs, pairing, ciphertexts, signed, verify, record, signed_study, cohort, vector,
        noisy_vector, record_id, selection, rehearsed, canaries, judged, judge_tables, judge_material,
        count, rare, sizes, outcomes, context, result, head, solution,
    )
} | {"hash": hashed, "study": studied, "rows": reach}  # fmt: skip
