"""The mode with mask helpers over again, and who reads a record: in plain integers and hashes, with no line of `protocol`.

Messages are read by the tables of docs/helpers.md and docs/protocol.md: a message or struct is its fields by name, an id text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tests.vectors import plain
from tests.vectors.plain import Refused, h, hkdf, info

Case = Mapping[str, Any]
Json = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"(?m)^\| (?:\d+ \| )?([A-Z]\w+) \| (.+) \|$")
FIELD = re.compile(
    r"(?:([A-Za-z#_ ]+?) )?((?:list≤\d+ )?\(?(?:list≤\d+ )?[A-Za-z]\w*(?:≤\d+)?\)?↑?)(?: \(.*)?$"
)
SUITE = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-replicated_4"
FOUR = [f"helper-{place}" for place in range(4)]


def tables(page: str) -> dict[str, list[tuple[str, str]]]:
    """A page's messages and structs: each one's fields, and their types."""
    text = re.sub(r"(?<=\d),(?=\d)", "", (DOCS / page).read_text("utf-8")).replace("2^20", "1048576")
    found = {}
    for name, row in ROW.findall(text):
        fields = re.sub(r"signature( B64)? \(.*", "signature B64", row).split(" · ")
        read = [FIELD.fullmatch(field) for field in fields]
        if all(read):
            found[name] = [((each[1] or "items").replace(" ", "_"), each[2]) for each in read if each]
    return found


TABLES = {"helpers": tables("helpers.md"), "members": tables("protocol.md")}


def decoded(data: bytes, name: str, page: str = "helpers") -> Json:
    """A message whole: its two bytes of version and kind, and its fields."""
    source = BytesIO(data[2:])
    value = _read(source, name, page)
    assert not source.read(), name
    assert isinstance(value, dict)
    return value


def _read(source: BytesIO, kind: str, page: str) -> Any:
    kind = kind.rstrip("↑")
    if kind.startswith("list"):
        item = kind.partition(" ")[2].removeprefix("(").removesuffix(")")
        return [_read(source, item, page) for _ in range(_uint(source, 4))]
    for each in (page, "members"):
        if kind in TABLES[each]:
            return {label: _read(source, form, each) for label, form in TABLES[each][kind]}
    if kind[0] == "u":
        return _uint(source, int(kind[1:]) // 8)
    if kind == "id":
        return source.read(_uint(source, 1)).decode()
    return source.read(8 if kind == "f64" else int(kind[1:]) if kind[1:].isdigit() else _uint(source, 4))


def _uint(source: BytesIO, size: int) -> int:
    return int.from_bytes(source.read(size), "little")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def named(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def raw(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def root(leaves: Sequence[bytes]) -> bytes:
    """The Merkle root (§2)."""
    found: str = plain.merkle({"leaves": [leaf.hex() for leaf in leaves]})["root"]
    return bytes.fromhex(found)


def verify(public: bytes, signature: bytes, digest: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest)
    except InvalidSignature as error:
        raise Refused("bad-signature") from error


# Keys and uploads (H3–H5)


def card(case: Case) -> Case:
    identity, private, cohort = raw(case, "identity", "private", "cohort")
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    unsigned = bytes([2, 32]) + cohort + named(case["member"]) + public + u64(case["expires_s"])
    signature = Ed25519PrivateKey.from_private_bytes(identity).sign(h("helper-card", unsigned))
    return {"public": public.hex(), "card": (unsigned + signature).hex()}


def context(case: Case) -> Case:
    roster, opening = raw(case, "roster", "opening")
    read, said = decoded(roster, "Roster", "members"), decoded(opening, "HelperOpening")
    manifest, chain = said["manifest"], said["chain"]
    roster_hash = h("roster", roster)
    fields = opening[2 : opening.index(chain + named(said["terms"]["statistic"]))]
    terms = opening[2 + len(fields) + 32 : -64]
    hashes = {
        "roster_hash": roster_hash,
        "cohort": h("cohort", roster_hash, u64(manifest["counter"])),
        "manifest_hash": h("helper-manifest", fields),
        "terms_hash": h("terms", terms),
        "layout_hash": h("layout", said["terms"]["layout"]),
    }
    made = {name: value.hex() for name, value in hashes.items()}
    roster_hash, cohort, manifest_hash, *others = hashes.values()
    bound = h(
        "helper-ctx",
        SUITE,
        b"helpers",
        read["federation"],
        roster_hash,
        cohort,
        manifest_hash,
        chain,
        *others,
    )
    return made | {"context": bound.hex()}


def box_key(case: Case) -> Case:
    private, public, bound = raw(case, "private", "public", "context")
    key = X25519PrivateKey.from_private_bytes(private)
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise Refused("low-order-point") from error
    sender = key.public_key().public_bytes_raw()
    names = case["client"].encode(), case["helper"].encode()
    return {"sender": sender.hex(), "key": hkdf(shared, bound, info("helper-box", *names, sender, public))}


def commitment(case: Case) -> Case:
    bound, drawn = raw(case, "context", "seed")
    return {
        "commitment": h("helper-seed", bound, case["client"].encode(), bytes([case["index"]]), drawn).hex()
    }


def upload(case: Case) -> Case:
    announced, public = raw(case, "upload", "public")
    said = decoded(announced, "HelperUpload")
    header = said["header"]
    made = {
        "chunk_root": root(said["chunk_digests"]),
        "seed_root": root(said["commitments"]),
        "box_root": root(said["boxes"]),
    }
    bound = header["context"], header["member"].encode(), header["lineage"], header["records"]
    digest = h("helper-digest", *bound, header["sender_key"], *made.values())
    verify(public, header["signature"], h("helper-upload", *bound, digest))
    return {name: value.hex() for name, value in made.items()} | {"digest": digest.hex()}


def masks(case: Case) -> Case:
    chunks = []
    for start in range(0, case["elements"], case["chunk_elements"]):
        count = min(case["chunk_elements"], case["elements"] - start)
        shape = {"bits": case["bits"], "offset": start, "elements": [0] * count}
        chunks.append(plain.masked({**shape, "added": case["seeds"], "subtracted": []})["packed"])
    return {
        "chunks": chunks,
        "digests": [sha256(bytes.fromhex(each)).hexdigest() for each in chunks],
    }


# Outcomes, and how an attempt ends: H7, H9


def entry(survivor: Case) -> bytes:
    """A survivor's fields."""
    parts = [survivor["lineage"], survivor["records"], survivor.get("digest", "00" * 32)]
    return named(survivor["member"]) + b"".join(
        each if isinstance(each, bytes) else bytes.fromhex(each) for each in parts
    )


def signed_outcome(bound: bytes, family: str, floor: int, root_: bytes) -> bytes:
    return h("survivors", bound, family.encode(), u32(floor), root_)


def outcome(case: Case) -> Case:
    (bound,), leaves = raw(case, "context"), [entry(each) for each in case["survivors"]]
    tree = plain.merkle({"leaves": [leaf.hex() for leaf in leaves]})
    made = signed_outcome(bound, case["family"], case["floor"], bytes.fromhex(tree["root"]))
    return {**tree, "outcome": made.hex()}


def closed(bound: bytes, family: str, floor: int, reason: str, sets: Sequence[Sequence[Case]]) -> bytes:
    outcomes = [signed_outcome(bound, family, floor, root([entry(each) for each in one])) for one in sets]
    return h("closing", bound, reason.encode(), *outcomes)


def closing(case: Case) -> Case:
    bound, chain = raw(case, "context", "chain")
    made = closed(bound, case["family"], case["floor"], case["reason"], case["sets"])
    return {"closing": made.hex(), "chain": h("link", chain, made).hex()}


def check_votes(roster: Json, bound: bytes, made: bytes, votes: Sequence[Json]) -> None:
    keys = {each["member"]: each["key"] for each in roster["members"] if each["member"] in roster["helpers"]}
    for vote in votes:
        if (vote["context"], vote["outcome"]) != (bound, made):
            raise Refused("certificate-invalid")
        if vote["member"] not in keys:
            raise Refused("not-a-decryptor")
        said = bytes([2, 39]) + bound + named(vote["member"]) + made
        verify(keys[vote["member"]], vote["signature"], h("helper-vote", said))
    if len({vote["member"] for vote in votes}) < 3:
        raise Refused("certificate-invalid")


def floor_of(opening: Json) -> int:
    """g."""
    floor: int = opening["manifest"]["a"] + opening["manifest"]["h_min"]
    return floor


def certificate(case: Case) -> Case:
    roster, opening, certified = raw(case, "roster", "opening", "certificate")
    read, said = decoded(roster, "Roster", "members"), decoded(certified, "HelperCertificate")
    bound = bytes.fromhex(context(case)["context"])
    sets = [said["survivors"]] if said["survivors"] else []
    told = said["family"], said["floor"]
    if said["context"] != bound or told != ("exact", floor_of(decoded(opening, "HelperOpening"))):
        raise Refused("certificate-invalid")
    made = h("void", bound, said["reason"].encode())
    if sets:
        made = signed_outcome(bound, *told, root([entry(each) for each in sets[0]]))
    check_votes(read, bound, made, said["votes"])
    return {"outcome": made.hex(), "closing": closed(bound, *told, said["reason"], sets).hex()}


def counted(case: Case) -> Case:
    """Whether three helpers certified a set of n_min or more in which this very upload stands."""
    roster, opening, announced, shown = raw(case, "roster", "opening", "upload", "counted")
    read, begun, proof = (
        decoded(roster, "Roster", "members"),
        decoded(opening, "HelperOpening"),
        decoded(shown, "HelperCounted"),
    )
    header, bound = decoded(announced, "HelperUpload")["header"], bytes.fromhex(context(case)["context"])
    public = next(each["key"] for each in read["members"] if each["member"] == header["member"])
    own = header | {
        "digest": bytes.fromhex(upload({"upload": case["upload"], "public": public.hex()})["digest"])
    }
    path = {
        "root": proof["root"].hex(),
        "leaf": entry(own).hex(),
        "index": proof["place"],
        "count": proof["count"],
        "path": [each.hex() for each in proof["path"]],
    }
    holds = plain.merkle_path(path)["holds"] and proof["count"] >= begun["manifest"]["n_min"]
    if proof["context"] != bound:
        raise Refused("wrong-context")
    if not holds or entry(proof["survivor"]) != entry(own):
        raise Refused("result-mismatch")
    check_votes(read, bound, signed_outcome(bound, "exact", floor_of(begun), proof["root"]), proof["votes"])
    return {"counted": header["member"]}


# Who is asked, and whose sums are taken (H6, H8)


def panel(case: Case) -> Case:
    clients, complaints = [f"client-{index}" for index in range(6)], case["complaints"]
    sound = sorted(helper for helper, names in complaints.items() if len(names) <= case["a"])
    if len(sound) < 3:
        raise Refused("box-refused" if len(sound) < len(complaints) else "quorum-lost")

    def left(helpers: Sequence[str]) -> list[str]:
        return [client for client in clients if not any(client in complaints[helper] for helper in helpers)]

    def rank(helpers: Sequence[str]) -> tuple[bool, int, int, Sequence[str]]:
        return len(left(helpers)) < case["n_min"], -len(helpers), -len(left(helpers)), helpers

    chosen = min([*combinations(sound, 3), tuple(sound)], key=rank)
    if len(left(chosen)) < case["n_min"]:
        raise Refused("survivors-too-few")
    return {"panel": list(chosen), "survivors": left(chosen)}


def settle(case: Case) -> Case:
    """For each seed the sum that two of its holders return; at most one helper may be contradicted."""
    holders, outvoted = [], set[str]()
    for j, lacking in enumerate(FOUR):
        said = {
            helper: names[j - (j > FOUR.index(helper))]
            for helper, names in case["sums"].items()
            if helper != lacking
        }
        if len(said) < 2:
            raise Refused("quorum-lost")
        alike = [[helper for helper in said if said[helper] == value] for value in said.values()]
        most = max(alike, key=len)
        if len(most) < 2:
            raise Refused("helper-disagreement", sorted(said))
        outvoted |= said.keys() - set(most)
        holders.append(most)
    if len(outvoted) > 1:
        raise Refused("helper-disagreement", sorted(outvoted))
    return {"holders": holders, "outvoted": sorted(outvoted)}


FUNCTIONS: dict[str, Callable[[Case], Case]] = {
    "helper-card": card,
    "helper-context": context,
    "helper-box-key": box_key,
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
