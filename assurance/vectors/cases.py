"""The inputs of the vectors, one list of cases a file."""

from collections.abc import Iterator
from hashlib import sha256
from itertools import combinations
from random import Random
from typing import Any

from assurance.reference.study import canonical
from assurance.reference.wire import decode
from assurance.vectors.rounds import Recorded
from veilsum.protocol.shamir import PRIME

Case = dict[str, Any]


def seed(name: str, count: int = 32) -> str:
    """Bytes that nobody chose."""
    return "".join(sha256(f"{name} {i}".encode()).hexdigest() for i in range(-(-count // 32)))[: 2 * count]


def case(name: str, function: str, **inputs: Any) -> Case:
    return {"name": name, "function": function, "input": inputs}


LOW_ORDER = (
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)
PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
"""RFC 7748 §6.1, Bob's."""


def keys() -> Iterator[Case]:
    bound = {"cohort": seed("cohort"), "manifest_hash": seed("manifest")}
    ends = {"low": "ann", "high": "bob"}
    for purpose in ("pair-mask", "pair-box"):
        yield case(
            f"K_0 for {purpose}",
            "pair-key",
            purpose=purpose,
            private=seed("x"),
            public=PUBLIC,
            **ends,
            **bound,
        )
    for point in LOW_ORDER:
        yield case(
            f"low order {point[:8]}",
            "pair-key",
            purpose="pair-mask",
            private=seed("x"),
            public=point,
            **ends,
            **bound,
        )
    for sequence in (1, 2, 2**32, 2**53 - 1):
        yield case(
            f"K_{sequence}", "ratchet", key=seed(f"key {sequence}"), cohort=seed("cohort"), sequence=sequence
        )
    yield case("r_uv", "mask-seed", key=seed("key"), context=seed("ctx"), **ends)
    for dealer, decryptor in (("ann", "bob"), ("bob", "ann")):
        yield case(
            f"the box of {dealer} for {decryptor}",
            "box-key",
            key=seed("key"),
            context=seed("ctx"),
            salt=seed("salt"),
            dealer=dealer,
            decryptor=decryptor,
        )
    for purpose, members, extra in (
        ("commit-self", ["ann"], {}),
        ("commit-edge", ["ann", "bob"], {}),
        ("commit-share", ["ann", "bob"], {"index": 0}),
        ("commit-share", ["ann", "bob"], {"index": 257}),
    ):
        secret = seed("share", 36) if extra else seed("seed")
        name = f"{purpose} {extra.get('index', '')}".strip()
        yield case(
            name, "commitment", purpose=purpose, context=seed("ctx"), members=members, secret=secret, **extra
        )
    for index in range(3):
        yield case(
            f"Ed25519 {index}", "signed", seed=seed(f"identity {index}"), digest=seed(f"digest {index}")
        )


def hashes() -> Iterator[Case]:
    yield case("no field", "hash", tag="roster", fields=[])
    yield case("an empty field", "hash", tag="roster", fields=[""])
    yield case("two fields", "hash", tag="link", fields=["61", "6263"])
    yield case("the same bytes, split otherwise", "hash", tag="link", fields=["6162", "63"])


def merkle() -> Iterator[Case]:
    for count in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13):
        yield case(f"{count} leaves", "merkle", leaves=[seed(f"leaf {i}", 4 + i) for i in range(count)])
    yield case("the leaf of no bytes", "merkle", leaves=[""])


def merkle_paths(trees: list[Case]) -> Iterator[Case]:
    """Right paths, and what must not pass for one."""
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


def masks() -> Iterator[Case]:
    for bits in (8, 32, 33, 48, 64):
        for offset in (0, 8, 4096, 2**20):
            yield case(
                f"{bits} bits from {offset}",
                "keystream",
                seed=seed("mask"),
                bits=bits,
                offset=offset,
                count=11,
            )
    # Two seeds with the same first half: a cipher keyed with 16 bytes, or with them folded, could not tell
    head = seed("mask")[:32]
    for tail in ("00" * 16, "01" + "00" * 15, head):
        name = f"256-bit seeds reach the cipher unfolded, {tail[:2]}"
        yield case(name, "keystream", seed=head + tail, bits=32, offset=0, count=8)
    elements = [0, 1, -1, 2**31 - 1, -(2**31), 12345, -54321, 7, 8]
    for bits in (32, 48):
        yield case(
            f"a chunk at {bits} bits",
            "masked",
            bits=bits,
            offset=64,
            elements=elements,
            added=[seed("b"), seed("r1")],
            subtracted=[seed("r0")],
        )


def packing() -> Iterator[Case]:
    for bits in (8, 9, 16, 31, 32, 33, 42, 48, 63, 64):
        half = 2 ** (bits - 1)
        elements = [0, 1, -1, half - 1, -half, half // 3, -(half // 5), 2, -2, 3, 5]
        yield case(f"{bits} bits", "pack", bits=bits, elements=elements)
        yield case(f"{bits} bits, one element", "pack", bits=bits, elements=[-half])


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


def shamir() -> Iterator[Case]:
    random = Random(1)
    for holders, threshold, secrets in ((2, 2, 1), (5, 4, 2), (7, 5, 1)):
        rows = [[random.randrange(PRIME) for _ in range(9 * secrets)] for _ in range(threshold - 1)]
        named = [seed(f"secret {i}") for i in range(secrets)]
        yield case(f"{threshold} of {holders}", "deal", secrets=named, holders=holders, coefficients=rows)
    extremes = [[0] * 9, [PRIME - 1] * 9]
    for name, secret in (("the least secret", "00" * 32), ("the greatest secret", "ff" * 32)):
        yield case(name, "deal", secrets=[secret], holders=4, coefficients=extremes)


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
    word = (PRIME).to_bytes(4, "little").hex()
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


def boxes() -> Iterator[Case]:
    for count in (1, 3):
        yield case(
            f"{count} shares", "box", key=seed("box"), shares=seed("shares", 36 * count), context=seed("ctx")
        )


def opened_boxes(sealed: list[Case]) -> Iterator[Case]:
    inputs, data = sealed[0]["input"], sealed[0]["output"]["box"]
    whole = {"key": inputs["key"], "box": data, "context": inputs["context"]}
    flipped = f"{int(data[:2], 16) ^ 1:02x}{data[2:]}"
    for name, change in (
        ("opens", {}),
        ("refused: a bit flipped", {"box": flipped}),
        ("refused: truncated", {"box": data[:-2]}),
        ("refused: empty", {"box": ""}),
        ("refused: of another context", {"context": seed("another")}),
        ("refused: under another key", {"key": seed("another")}),
    ):
        yield case(name, "open-box", **{**whole, **change})


def graphs() -> Iterator[Case]:
    for members, degree, committee in ((10, 4, 3), (250, 20, 15)):
        beacon = seed(f"beacon {members}")
        of = [f"m-{i:05}" for i in (0, 1, members - 1)]
        yield case(
            f"{members} members",
            "ring",
            members=members,
            degree=degree,
            beacon=beacon,
            committee=committee,
            of=of,
        )


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


def sizes() -> Iterator[Case]:
    whole = (3, 4, 5, 6, 8, 12, 50, 100, 200, 201, 300, 700, 999, 1000, 1001, 10_000)
    table = [(n, n, 0, n // 4, 100) for n in whole]
    table += [
        (1000, 1000, 50, 250, 100),
        (10_000, 10_000, 50, 2500, 100),
        (7, 7, 4, 1, 100),
        (50, 50, 1, 12, 100),
        (12, 12, 3, 3, 100),
        (12, 12, 3, 0, 100),
        (12, 12, 4, 3, 100),
    ]
    table += [(1000, 1000, 0, 50, 50), (1000, 1000, 0, 100, 100), (1000, 1000, 0, 0, 0), (201, 201, 0, 0, 0)]
    table += [(300, 300, 0, 75, 374), (8, 10, 0, 2, 100), (900, 1200, 0, 300, 100), (6, 8, 4, 2, 100)]
    table += [
        (2, 2, 0, 0, 100),
        (3, 3, 0, 1, 100),
        (6, 6, 0, 4, 100),
        (1500, 1500, 0, 700, 374),
        (4, 12, 0, 3, 100),
    ]
    for n, roster, nominated, a, loss in table:
        nominees = f", {nominated} nominated" if nominated else ""
        name = f"n={n} of {roster}, a={a}, loss={loss}{nominees}"
        more: Case = {"h_min": 3, "members_min": 3, "repeats": False}
        yield case(name, "sizes", roster=roster, members=n, nominated=nominated, a=a, loss=loss, **more)
    shared: Case = {"roster": 20, "nominated": 0, "a": 5, "loss": 100}
    for name, members, h_min, members_min, repeats in (
        ("h_min above 3", 20, 9, 3, False),
        ("fewer than members_min", 15, 3, 16, False),
        ("a run that is repeated needs all its members", 15, 3, 16, True),
    ):
        more = {"h_min": h_min, "members_min": members_min, "repeats": repeats}
        yield case(name, "sizes", members=members, **shared, **more)


def disputes(edges: list[str], boxes_: tuple[str, ...] = ()) -> list[Case]:
    made = [{"cause": "edge-disagreement", "parties": list(edge)} for edge in edges]
    return made + [{"cause": "box-refused", "parties": list(edge)} for edge in boxes_]


def covers() -> Iterator[Case]:
    for name, edges, complaints in (
        ("none", [], ()),
        ("one edge", ["ab"], ()),
        ("a lone complaint drops its dealer", [], ("ba",)),
        ("two complaints of one dealer", [], ("ab", "ac")),
        ("an edge and a complaint between the same two", ["ab"], ("ab",)),
        ("a star", ["ab", "ac", "ad"], ()),
        ("a path of three", ["ab", "bc", "cd"], ()),
        ("a triangle", ["ab", "bc", "ac"], ()),
        ("a square", ["ab", "bc", "cd", "ad"], ()),
        ("a pentagon with a tail", ["ab", "bc", "cd", "de", "ae", "ef"], ()),
        ("everybody against everybody", [a + b for a, b in combinations("abcdef", 2)], ()),
        ("apart from one another", ["ab", "cd"], ("fe",)),
        ("a liar against more than collude", ["ab", "ac", "ad", "bd"], ()),
        # Degrees are counted once: after a, b disputes with two, and would stay where it is counted again.
        ("a liar against another", ["ab", "ac", "ad", "be", "bf", "ef"], ()),
    ):
        for ranked in (3, 4) if name.endswith("another") else (0, 1):
            yield case(
                f"{name}, ranked {ranked}",
                "cover",
                context=seed(f"rank {ranked}"),
                disputes=disputes(edges, complaints),
                a=2 if name.startswith("a liar") else 5,
            )


def outcomes() -> Iterator[Case]:
    bound: Case = {name: seed(name) for name in ("context", "cohort", "question", "chain")}
    bound |= {"sequence": 2, "attempt": 1, "period": "2026-11", "step": "sum"}
    survivors = [{"member": each, "digest": seed(each)} for each in ("ann", "bob", "eve")]
    for name, reason, certified, repeats in (
        ("a sum", "none", survivors, "00" * 32),
        ("a sum that repeats another", "none", survivors, seed("repeated")),
        ("VOID", "survivors-too-few", [], "00" * 32),
        ("VOID by erasure", "erased", [], "00" * 32),
        ("lost", "lost", [], "00" * 32),
        ("refused: VOID with a set", "cancelled", survivors, "00" * 32),
        ("refused: a sum without a set", "none", [], "00" * 32),
    ):
        yield case(name, "outcomes", **bound, reason=reason, survivors=certified, repeats=repeats)


def cohorts() -> Iterator[Case]:
    for name, counter, repeats in (
        ("fresh records", 0, "00" * 32),
        ("a repeated run", 2**32, seed("context")),
    ):
        bound = {"roster_hash": seed("roster"), "study": seed("study"), "period": "2026-11"}
        yield case(name, "cohort", counter=counter, repeats=repeats, **bound)


FFC: Case = {"kind": "ffc", "bias": False}
BIASED: Case = {"kind": "ffc", "bias": True}
FEATURES: Case = {"kind": "random-features", "size": 4, "bandwidth": 0.5}
CCVR: Case = {"kind": "ccvr"}


def content(notes: Case | None = None, after: Case | None = None, **question: Any) -> Case:
    """A study of three members that obeys every rule: the page's example, with other fields where they are given."""
    fields: Case = {
        "extractor": "ab" * 32,
        "dim": 2,
        "classes": ["benign", "malignant"],
        "statistics": [FFC],
        "ring_bits": 32,
        "records": {"least": 17, "most": 20, "least_per_class": 5, "rows_per_id": 1},
        "thin_classes": True,
        "members_min": 3,
        "members_max": 3,
        "a": 0,
        "h_min": 3,
        "loss": 100,
        "withhold": None,
        "noise": None,
        "windows": {"enrol": 600, "upload": 600, "answer": 60},
    }
    fields |= question
    ccvr = {"samples_per_class": 100, "power": 0.5} if CCVR in fields["statistics"] else None
    return {
        "format": "veilsum-study/1",
        "notes": {"name": "ct-2026", "version": 1, "purpose": "", "display": [], "expires": 2_000_000}
        | (notes or {}),
        "question": fields,
        "after": {"ridge": "gcv", "publish": [], "readers": "members", "ccvr": ccvr} | (after or {}),
    }


def text(values: Case) -> str:
    """Canonical JSON."""
    return canonical(values).decode()


MANY: Case = {
    "members_min": 11,
    "members_max": 12,
    "a": 3,
    "records": {"least": 50, "most": 20_000, "least_per_class": 5, "rows_per_id": 1},
}
NOISE: Case = {"epsilon": 1.0, "delta": 1e-07, "unit": "record", "recipe": "mean+sum"}


def studies() -> Iterator[Case]:
    """Contents, what follows from them, and what breaks one rule each (§4.1)."""
    good = {
        "the page's example": content(),
        "every statistic": content(statistics=[BIASED, FEATURES, CCVR], ring_bits=48),
        "rare classes withheld": content(**MANY, ring_bits=48, withhold={"margin": 3}, thin_classes=False),
        "notes in other words": content(
            {"name": "x", "version": 2**32 - 1, "purpose": 'größer \u2713 "\\', "display": ["gut", "böse"]}
        ),
        "all that may follow": content(
            after={"ridge": 1e-07, "publish": ["lda", "ncm", "pooled", "posterior"], "readers": "anyone"}
        ),
        **{
            recipe: content(
                **MANY | {"records": {"least": 1, "most": 4000, "least_per_class": 1, "rows_per_id": 3}},
                ring_bits=48,
                thin_classes=False,
                noise=NOISE | {"recipe": recipe},
            )
            for recipe in ("sum", "mean+sum", "mean+sum+gradients")
        },
        "noisy CCVR": content(**MANY, ring_bits=48, statistics=[CCVR], noise=NOISE | {"unit": "member"}),
    }
    for name, values in good.items():
        yield case(name, "study", content=text(values))
    later = content({"version": 2, "expires": 3_000_000})
    yield case("a later version: the same approval", "study", content=text(later))
    rows: Case = content()["question"]["records"]
    wrong = {
        "too few rows of honest members": content(records=rows | {"least": 16}),
        "more second moments than numbers in the rows": content(statistics=[{**FEATURES, "size": 64}]),
        "fewer members than n_min": content(members_min=11, members_max=12, a=6, h_min=6),
        "a below a quarter": content(members_min=11, members_max=12, a=2),
        "neither withheld nor thin": content(thin_classes=False),
        "withheld and noisy": content(**MANY, ring_bits=48, noise=NOISE, withhold={"margin": 0}),
        "two noisy statistics": content(**MANY, ring_bits=48, noise=NOISE, statistics=[FFC, CCVR]),
        "δ above one in all rows": content(**MANY, ring_bits=48, noise=NOISE | {"delta": 1e-05}),
        "noise in 32 bits": content(**MANY, noise=NOISE),
        "too many noisy rows": content(
            **MANY | {"records": rows | {"most": 2**22 // 12 + 1}}, ring_bits=48, noise=NOISE
        ),
        "CCVR with gradients": content(
            **MANY, ring_bits=48, statistics=[CCVR], noise=NOISE | {"recipe": "mean+sum+gradients"}
        ),
        "a scale below 8": content(records=rows | {"most": 3_000_000}),
        "a margin that may not be missing": content(**MANY, ring_bits=48, withhold={"margin": 4}),
        "windows above 30 days": content(windows={"enrol": 1, "upload": 1_000_000, "answer": 600_000}),
        "too long a vector": content(
            dim=65_536, statistics=[CCVR], records=rows | {"least": 10**6, "most": 10**6}
        ),
        "too many directions": content(
            dim=65_536,
            statistics=[{**FEATURES, "size": 4096}],
            records=rows | {"least": 10**6, "most": 10**6},
        ),
        "statistics out of order": content(statistics=[CCVR, FFC]),
        "a class twice": content(classes=["a", "a"]),
        "a class with a space at its end": content(classes=["a", "b "]),
        "a name for one class": content({"display": ["gut"]}),
        "documents out of order": content(after={"publish": ["ncm", "lda"]}),
        "an unknown field": content() | {"more": 1},
        "a boolean for an integer": content(a=False),
        "an infinite purpose": content({"purpose": "x" * 1025}),
    }
    for name, values in wrong.items():
        yield case(f"refused: {name}", "study", content=text(values))
    plain = text(content())
    for name, other in (
        ("a space", plain.replace(":", ": ", 1)),
        ("a point", plain.replace('"dim":2', '"dim":2.0')),
        ("an exponent", plain.replace('"dim":2', '"dim":2e0')),
        (
            "another order",
            plain.replace('"format":"veilsum-study/1",', "").replace("{", '{"format":"veilsum-study/1",', 1),
        ),
        ("an escape that need not be", plain.replace("benign", "\\u0062enign")),
        ("half of it", plain[: len(plain) // 2]),
    ):
        yield case(f"refused: spelled with {name}", "study", content=other)


def signed_studies() -> Iterator[Case]:
    yield case(
        "signed",
        "signed-study",
        seed=seed("study key"),
        federation=seed("federation"),
        content=text(content()),
    )


def vectors() -> Iterator[Case]:
    """Exact vectors (§8.1). No element lies so near the middle between two integers that binary64 could tell otherwise."""
    example = [[3.0, 4.0], [0.0, 2.0]], [0, 1]
    yield case(
        "the page's example",
        "vector",
        content=text(content()),
        rows=example[0],
        labels=example[1],
        withheld=[],
    )
    random = Random(8)
    rows = [[random.gauss(0, 1) for _ in range(2)] for _ in range(20)]
    labels = [random.randrange(2) for _ in rows]
    for name, statistics in (
        ("ffc", [FFC]),
        ("ffc with bias", [BIASED]),
        ("random features", [FEATURES]),
        ("ccvr", [CCVR]),
        ("all", [BIASED, FEATURES, CCVR]),
    ):
        for bits in (32, 48):
            values = text(content(statistics=statistics, ring_bits=bits))
            yield case(
                f"{name}, {bits} bits", "vector", content=values, rows=rows, labels=labels, withheld=[]
            )
    shared: Case = {"content": text(content(statistics=[FFC, CCVR])), "rows": rows, "labels": labels}
    yield case("without a class", "vector", **shared, withheld=[1])
    yield case("without any", "vector", **shared, withheld=[0, 1])
    yield case("no rows", "vector", **shared | {"rows": [], "labels": []}, withheld=[])
    large = {"rows": [[1e200, -1e200], [3e-300, 4e-300]], "labels": [0, 1]}
    yield case("whose squares no double holds", "vector", **shared | large, withheld=[])


def noisy_vectors() -> Iterator[Case]:
    """Vectors of noisy steps before noise (§9). No number lies so near the middle between two integers that binary64 could tell otherwise."""
    limits = {"least": 1, "most": 4000, "least_per_class": 1, "rows_per_id": 2}
    shared: Case = {**MANY, "records": limits, "ring_bits": 48, "thin_classes": False}

    def noisy(statistic: Case, recipe: str, unit: str = "record", most: int = 4000) -> str:
        values = content(
            **shared | {"records": limits | {"most": most}},
            statistics=[statistic],
            noise=NOISE | {"recipe": recipe, "unit": unit},
        )
        return text(values)

    example: Case = {"rows": [[3.0, 4.0], [0.0, 2.0]], "labels": [0, 1]}
    random = Random(10)
    many: Case = {
        "rows": [[random.gauss(0, 1) for _ in range(2)] for _ in range(12)],
        "labels": [random.randrange(2) for _ in range(12)],
    }
    centre: Case = {"centre": [0.25, -0.125]}
    rate: Case = {"rate": [0.03125]}
    plain: Case = rate | {"weights": [[0.5, -0.25], [0.125, 1.0]], "whitening": [[1.5, 0.25], [0.25, 0.75]]}
    biased: Case = rate | {"weights": [*plain["weights"], [0.25, 0.0]], "whitening": _whitening(3)}
    waves: Case = rate | {"weights": [[0.5, -0.25]] * 4, "whitening": _whitening(4)}
    blank: Case = {"whitening": [[0.0, 0.0]] * 2}
    for name, statistic, recipe, step, given, material in (
        ("the page's example", FFC, "sum", "sum", example, {}),
        ("no rows", FFC, "sum", "sum", {"rows": [], "labels": []}, {}),
        ("a mean", FFC, "mean+sum", "mean", many, {}),
        ("centred", FFC, "mean+sum", "sum", many, centre),
        ("a row that is the centre", FFC, "mean+sum", "sum", example, {"centre": [0.0, 1.0]}),
        ("with bias", BIASED, "sum", "sum", many, {}),
        ("centred, with bias", BIASED, "mean+sum", "sum", many, centre),
        ("random features", FEATURES, "sum", "sum", many, {}),
        ("random features, centred", FEATURES, "mean+sum", "sum", many, centre),
        ("ccvr", CCVR, "sum", "sum", many, {}),
        ("ccvr, centred", CCVR, "mean+sum", "sum", many, centre),
        ("a gradient", FFC, "mean+sum+gradients", "gradient-7", many, centre | plain),
        (
            "a gradient, whitened to zeros",
            FFC,
            "mean+sum+gradients",
            "gradient-2",
            many,
            centre | plain | blank,
        ),
        ("a gradient, with bias", BIASED, "mean+sum+gradients", "gradient-1", many, centre | biased),
        (
            "a gradient of random features",
            FEATURES,
            "mean+sum+gradients",
            "gradient-30",
            many,
            centre | waves,
        ),
    ):
        values = noisy(statistic, recipe)
        yield case(name, "noisy-vector", content=values, step=step, material=material, **given, **COHORT)
    for name, statistic in (("ffc", FFC), ("ccvr", CCVR)):
        for most in (4, 12):
            values = noisy(statistic, "sum", "member", most)
            yield case(
                f"{name}, a member of at most {most} rows",
                "noisy-vector",
                content=values,
                step="sum",
                material={},
                **many,
                **COHORT,
            )
    for name, recipe, step, n, n_min in (
        ("fewer members: more noise each", "sum", "sum", 11, 8),
        ("a gradient's share", "mean+sum+gradients", "gradient-1", 12, 8),
    ):
        values = noisy(FFC, recipe)
        material = centre | plain if step != "sum" else {}
        yield case(
            name,
            "noisy-vector",
            content=values,
            step=step,
            material=material,
            **example,
            members=n,
            n_min=n_min,
        )


def _whitening(width: int) -> list[list[float]]:
    """Symmetric, with a diagonal that differs."""
    return [[1.0 + i if i == j else 0.125 for j in range(width)] for i in range(width)]


COHORT: Case = {"members": 12, "n_min": 9}


def indicators() -> Iterator[Case]:
    for name, labels in (
        ("none", []),
        ("one short", [0] * 4 + [1] * 5),
        ("both", [0, 1] * 5),
        ("one class", [1] * 20),
    ):
        yield case(name, "indicator", content=text(content()), labels=labels)


def rare_classes() -> Iterator[Case]:
    shared: Case = {
        **MANY,
        "ring_bits": 48,
        "classes": ["a", "b", "c"],
        "withhold": {"margin": 1},
        "members_min": 11,
    }
    ffc = text(content(**shared, thin_classes=False))
    thin = text(content(**shared, statistics=[FFC, CCVR], dim=16, thin_classes=True))
    thick = text(content(**shared, statistics=[FFC, CCVR], dim=16, thin_classes=False))
    for name, values, holders in (
        ("all held", ffc, [12, 12, 12]),
        ("just held", ffc, [12, 7, 6]),
        ("none held", ffc, [6, 6, 6]),
        ("CCVR that takes thin classes", thin, [12, 12, 7]),
        ("a class is thin", thick, [12, 11, 10]),
        ("too few rows behind what is left", thick, [10, 10, 10]),
        ("just enough rows behind it", thin, [9, 9, 0]),
        ("a holder too few behind it", thin, [9, 8, 0]),
    ):
        yield case(name, "rare", content=values, holders=holders)


def directions() -> Iterator[Case]:
    for dim in (2, 3):
        statistics = [{**FEATURES, "size": 2}]
        yield case(f"{dim} dimensions", "directions", content=text(content(dim=dim, statistics=statistics)))


def contexts(recorded: Recorded) -> Iterator[Case]:
    """A first round, and ones with links."""
    for name, attempt in recorded.attempts.items():
        yield case(name, "context", **attempt.opened)


def context_preimages(found: list[Case]) -> Iterator[Case]:
    suite = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31".hex()
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


def messages(recorded: Recorded) -> Iterator[Case]:
    """Uploads, certificates, what is due and evictions, out of whole rounds."""
    for name, attempt in recorded.attempts.items():
        for member, upload in attempt.uploads.items():
            public = recorded.federation.keys[member].public.hex()
            yield case(f"{name}, the upload of {member}", "upload", upload=upload, public=public)
        if attempt.certificate:
            shared = {**attempt.opened, "certificate": attempt.certificate}
            yield case(f"{name}, its certificate", "certificate", **shared)
            if attempt.staying:
                yield case(f"{name}, what is due", "due", **attempt.opened, staying=attempt.staying)
            if attempt.evictions:
                yield case(f"{name}, its evictions", "eviction", **shared, evictions=attempt.evictions)


def records() -> Iterator[Case]:
    digests = (
        "context",
        "federation",
        "study",
        "cohort",
        "terms",
        "survivors_hash",
        "head",
        "sums",
        "transcript",
    )
    exact: Case = {
        "format": "veilsum-result/4",
        "round": seed("context")[:16],
        **{name: seed(name) for name in digests},
        "name": "ct-2026",
        "version": 3,
        "period": "2026-11",
        "step": "sum",
        "survivors": [{"member": "ann", "digest": seed("digest")}],
        "disputes": [{"cause": "box-refused", "parties": ["bob", "eve"]}],
        "dropped": ["bob"],
        "evicted": [],
        "withheld": [2],
        "holders": [5, 5, 4],
        "rows": 100,
        "noise": None,
        "documents": [{"name": "lda", "sha256": seed("lda")}],
        "error_bound": 2.0**-44,
        "solution": {
            "chosen_by": "gcv",
            "ridge": 4.0,
            "grid": [0.00001, 0.0001, 0.1, 1.0, 4.0, 1e15, 1e16, 4.5e16, 1e22, 1e300],
            "errors": [
                1 / 3,
                0.1 + 0.2,
                None,
                123456.789,
                2.0**53,
                674309344592470.75,
                5e-324,
                1.7976931348623157e308,
                2.5e-7,
                0.0,
                -0.0,
            ],
            "dof": 12.0,
            "condition": 1e23,
            "residual": 1e-9,
            "rank": 3,
            "empty_classes": [2],
        },
    }
    yield case("an exact sum", "record", record=exact)
    noise = {"mu": 1.0, "epsilon": 4.0, "spent_epsilon": 2.5, "study_epsilon": 5.0, "delta": 1e-5}
    yield case("a noisy sum", "record", record={**exact, "withheld": [], "holders": [], "noise": noise})
