"""Cases derived from others: paths in trees, changed chunks and boxes, messages from whole rounds.

All other inputs are in the files.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np
from safetensors.numpy import save

from assurance.reference.wire import decode
from assurance.vectors.rounds import Recorded
from veilsum.protocol.messages import Ciphertexts, Pairing
from veilsum.protocol.shamir import LIMB_PRIME

Case = dict[str, Any]

OTHER = sha256(b"another 0").hexdigest()
"""A wrong digest, in hexadecimal."""


def case(name: str, function: str, **inputs: Any) -> Case:
    return {"name": name, "function": function, "input": inputs}


def merkle_paths(trees: list[Case]) -> Iterator[Case]:
    """Yield valid paths, and paths that must be refused."""
    for tree in trees:
        leaves, found = tree["input"]["leaves"], tree["output"]
        count = len(leaves)
        if count not in {1, 5, 8}:
            continue
        index = count - 1
        right = {
            "root": found["root"],
            "leaf": leaves[index],
            "index": index,
            "count": count,
            "path": found["paths"][index],
        }
        for name, change in (
            ("holds", {}),
            ("of another leaf", {"leaf": "00"}),
            ("for another index", {"index": index - 1}),
            ("for another count", {"count": count + 1}),
            ("with a node more", {"path": [*right["path"], "00" * 32]}),
            ("beyond the last leaf", {"index": count}),
            ("to another root", {"root": "00" * 32}),
        ):
            yield case(f"{tree['name']}, {name}", "merkle-path", **{**right, **change})


def unpacking(packed: list[Case]) -> Iterator[Case]:
    for each in packed:
        bits, count, data = each["input"]["bits"], len(each["input"]["elements"]), each["output"]["packed"]
        if count == 1:
            continue
        yield case(each["name"], "unpack", bits=bits, count=count, packed=data)
        yield case(f"{each['name']}, truncated", "unpack", bits=bits, count=count, packed=data[:-2])
        yield case(f"{each['name']}, a byte left over", "unpack", bits=bits, count=count, packed=data + "00")
        if count * bits % 8:
            padded = data[:-2] + f"{int(data[-2:], 16) | 0x80:02x}"
            yield case(f"{each['name']}, padded with a one", "unpack", bits=bits, count=count, packed=padded)


def recoveries(dealt: list[Case]) -> Iterator[Case]:
    for each in dealt:
        rows, threshold = each["output"]["shares"], 1 + len(each["input"]["coefficients"])
        for positions in list(combinations(range(len(rows)), threshold))[:4]:
            for secret in range(len(rows[0])):
                shares = [rows[p][secret] for p in positions]
                name = f"{each['name']}, secret {secret} from {' '.join(map(str, positions))}"
                yield case(name, "recover", positions=list(positions), shares=shares)
    rows = [row[0] for row in dealt[1]["output"]["shares"]]
    whole = {"positions": [0, 1, 2, 3], "shares": rows[:4]}
    word = (LIMB_PRIME).to_bytes(4, "little").hex()
    for name, change in (
        ("a position twice", {"positions": [0, 1, 2, 2]}),
        ("a word that is p", {"shares": [word + rows[0][8:], *rows[1:4]]}),
        ("a word above p", {"shares": ["ffffffff" + rows[0][8:], *rows[1:4]]}),
        ("a short share", {"shares": [rows[0][:-2], *rows[1:4]]}),
        ("a long share", {"shares": [rows[0] + "00000000", *rows[1:4]]}),
        ("shares of two dealings", {"shares": [dealt[2]["output"]["shares"][0][0], *rows[1:4]]}),
        ("shares at other positions", {"positions": [4, 1, 2, 3]}),
    ):
        yield case(f"refused: {name}", "recover", **{**whole, **change})


def opened_boxes(sealed: list[Case]) -> Iterator[Case]:
    inputs, data = sealed[0]["input"], sealed[0]["output"]["box"]
    whole = {"key": inputs["key"], "box": data, "context": inputs["context"]}
    flipped = f"{int(data[:2], 16) ^ 1:02x}{data[2:]}"
    for name, change in (
        ("opens", {}),
        ("refused: a bit flipped", {"box": flipped}),
        ("refused: truncated", {"box": data[:-2]}),
        ("refused: empty", {"box": ""}),
        ("refused: of another context", {"context": OTHER}),
        ("refused: under another key", {"key": OTHER}),
    ):
        yield case(name, "open-box", **{**whole, **change})


def windows(drawn: list[Case]) -> Iterator[Case]:
    inputs, order = drawn[0]["input"], drawn[0]["output"]["order"]
    shared = {key: inputs[key] for key in ("members", "degree", "beacon")}
    around = [f"m-{i:05}" for i in order]
    for name, lost, most in (
        ("nobody lost", [], 0),
        ("two next to each other", around[3:5], 1),
        ("as many as may be", around[3:5], 2),
        ("across the end of the ring", [around[0], around[-1]], 1),
        ("too far apart", [around[0], around[5]], 1),
    ):
        yield case(name, "window", **shared, lost=sorted(lost), dropped_max=most)


def contexts(recorded: Recorded) -> Iterator[Case]:
    """Yield cases of a first round, and of rounds with links."""
    for name, attempt in recorded.attempts.items():
        yield case(name, "context", **attempt.opened)


def context_preimages(found: list[Case]) -> Iterator[Case]:
    suite = b"x25519_mlkem768-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31".hex()
    for each in found:
        made, opening = each["output"], bytes.fromhex(each["input"]["opening"])
        roster = decode(bytes.fromhex(each["input"]["roster"]), "Roster")
        fields = [suite, roster.federation.hex(), made["roster_hash"], made["cohort"]]
        fields += [
            made["manifest_hash"],
            opening[34:42].hex(),
            opening[42:43].hex(),
            made["chain"],
            made["terms_hash"],
        ]
        yield case(f"the context's preimage, {each['name']}", "hash", tag="ctx", fields=fields)


def pairings(recorded: Recorded) -> Iterator[Case]:
    """Yield each member's pairing of a round, and what one member is shown of them, true and false."""
    federation, said = recorded.federation, [*map(bytes.fromhex, recorded.document["messages"])]
    for made in (Pairing.from_bytes(each) for each in said if each[1] == Pairing.kind):
        public = federation.keys[made.member].public.hex()
        yield case(f"the pairing of {made.member}", "pairing", pairing=made.to_bytes().hex(), public=public)
    member = federation.ids[-1]
    [index] = [
        index
        for _, to, index in recorded.document["enrolment"]
        if to == member and said[index][1] == Ciphertexts.kind
    ]
    shown = Ciphertexts.from_bytes(said[index])
    roster, manifest = federation.roster.to_bytes().hex(), federation.manifest.to_bytes().hex()
    whole = {"roster": roster, "manifest": manifest, "member": member}
    first, *others = shown.shown
    flipped = bytes([first.ciphertext[0] ^ 1]) + first.ciphertext[1:]
    for name, change in (
        ("as they are", shown),
        ("of another manifest", replace(shown, manifest=bytes.fromhex(OTHER))),
        ("without one", replace(shown, shown=tuple(others))),
        ("one changed", replace(shown, shown=(replace(first, ciphertext=flipped), *others))),
        ("one path too long", replace(shown, shown=(replace(first, path=(*first.path, bytes(32))), *others))),
        (
            "one with another signature",
            replace(shown, shown=(replace(first, signature=others[0].signature), *others)),
        ),
    ):
        yield case(
            f"the ciphertexts for {member}, {name}",
            "ciphertexts",
            **whole,
            ciphertexts=change.to_bytes().hex(),
        )


def messages(recorded: Recorded) -> Iterator[Case]:
    """Yield cases of certificates, due secrets and evictions from whole rounds."""
    for name, attempt in recorded.attempts.items():
        if attempt.certificate:
            shared = {**attempt.opened, "certificate": attempt.certificate}
            yield case(f"{name}, its certificate", "certificate", **shared)
            if attempt.staying:
                yield case(f"{name}, what is due", "due", **attempt.opened, staying=attempt.staying)
            if attempt.evictions:
                yield case(f"{name}, its evictions", "eviction", **shared, evictions=attempt.evictions)


def noise_rules(given: list[Case]) -> Iterator[Case]:
    """Yield files of material, false ones among them (NOISE-3), and studies whose noise no cohort can draw (NOISE-1)."""
    named = {each["name"]: each["input"] for each in given}
    for name in ("centred", "a gradient"):
        told = named[name]
        arrays = {key: np.array(values, np.float64) for key, values in told["material"].items()}
        centre = arrays["centre"]
        for what, other in (
            ("as its step needs it", arrays),
            ("the largest value", arrays | {"centre": centre * 0 + 1e6}),
            ("a value above the largest", arrays | {"centre": centre * 0 - 1_000_001.0}),
            ("no number", arrays | {"centre": centre * np.nan}),
            ("single precision", arrays | {"centre": centre.astype(np.float32)}),
            ("another shape", arrays | {"centre": np.append(centre, 0.0)}),
            ("an array less", {key: array for key, array in arrays.items() if key != "centre"}),
            ("an array more", arrays | {"other": centre}),
        ):
            inputs = {"content": told["content"], "step": told["step"], "file": save(other).hex()}
            rule = {} if what in {"as its step needs it", "the largest value"} else {"rule": "NOISE-3"}
            yield {**case(f"material, {name}: {what}", "material", **inputs), **rule}
    told = named["ffc, a member of at most 12 rows"]
    for most, rule in ((40, {}), (400, {"rule": "NOISE-1"})):
        content = told["content"].replace('"most":12', f'"most":{most}')
        cohort = {"members": told["members"], "n_min": told["n_min"]}
        yield {**case(f"a member of at most {most} rows", "noise-fits", content=content, **cohort), **rule}
