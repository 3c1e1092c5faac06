"""A member's own rows: which of them a run sums (member: Ids, member: Selection), and a noisy step's vector before noise (member: Noise).

A second implementation, written from the protocol's page alone.
"""

import hmac
import io
import json
import math
import re
import struct
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from operator import mul
from typing import Any

from assurance.reference.study import Study, unit
from assurance.reference.wire import demand, info, u

PACK_FIELDS = ("dim", "ids", "labels", "columns", "slips", "inputs")
MEAN_ROW = (math.sqrt(0.5), math.sqrt(0.5), math.isqrt(4**12 // 2))
ROW = (math.sqrt(0.9), math.sqrt(0.1), math.isqrt(4**12 // 10))
"""What z is multiplied by, the constant beside it, and the integer of that constant: of a mean, and of `ffc`."""


WHITE_SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def identifier(given: bytes) -> bytes:
    """An id's bytes (ID-2 to ID-4)."""
    name = spelled(given)
    demand(1 <= len(name) <= 1024, "local")
    return name


def spelled(given: bytes) -> bytes:
    try:
        text = given.decode("utf-8")
    except UnicodeDecodeError:
        while given.endswith(b"\0"):
            given = given[:-1]
        return given
    while (once := trimmed(text)) != text:
        text = once
    if found := re.fullmatch(r"(-?)0*(0|[1-9][0-9]*)(\.0*)?", text):
        text = "0" if found[2] == "0" else found[1] + found[2]
    return text.encode("utf-8")


def trimmed(text: str) -> str:
    kept = [each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) != "Cf"]
    while kept and ord(kept[0]) in WHITE_SPACE:
        del kept[0]
    while kept and ord(kept[-1]) in {0, *WHITE_SPACE}:
        del kept[-1]
    return "".join(kept)


def mark(secret: bytes, tag: str, *parts: Any) -> bytes:
    """An HMAC over an id, with the installation's secret (member: Ids)."""
    return hmac.digest(secret, info(tag, *parts), "sha256")


def key(secret: bytes, federation: bytes, each: bytes) -> bytes:
    """What the ledger knows an id by (member: Ids)."""
    return mark(secret, "record", federation, each) if each else bytes(32)


def held_out(secret: bytes, federation: bytes, each: bytes, share: float) -> bool:
    """Whether an id is in no count and no sum (member: Ids)."""
    drawn = int.from_bytes(mark(secret, "held-out", federation, each)[:8], "big")
    return each != b"" and Fraction(drawn, 2**64) < Fraction(share)


def is_usable(study: Study, row: Any, label: int) -> bool:
    return all(map(math.isfinite, row)) and any(row) and 0 <= label < len(study.classes)


def select(
    study: Study,
    rows: Any,
    labels: Sequence[int],
    ids: Sequence[bytes] | None,
    secret: bytes,
    federation: bytes,
    taken: Collection[bytes] = (),
    share: float = 0.0,
) -> list[int]:
    """Return the places of the rows that a run sums; `taken` are the keys of the records that are not free (member: Selection)."""
    seen, ranked = Counter[bytes](), defaultdict(list)
    for place, (row, label, each) in enumerate(zip(rows, labels, ids or [b""] * len(labels), strict=True)):
        rank = mark(secret, "row", federation, each, u(32, seen[each]))
        seen[each] += 1
        usable = is_usable(study, row, label) and not each.startswith(b"canary-")
        if usable and not held_out(secret, federation, each, share) and key(secret, federation, each) not in taken:
            ranked[each].append((rank, place))
    most = study.per_id if ids is not None else len(labels)
    kept = sorted(pair for pairs in ranked.values() for pair in sorted(pairs)[:most])
    return sorted(place for _, place in (kept if study.noise is not None else kept[: study.most]))


def check_canaries(study: Study, pack: bytes, rows: Any, labels: Sequence[int], ids: Sequence[bytes]) -> None:
    """Compare a member's canaries with those of the study's pack (CANARY-2 to CANARY-5)."""
    demand(sha256(pack).hexdigest() == study.pack, "malformed")
    known = dict(read_pack(study, pack))
    own = [
        (each, row, label) for each, row, label in zip(ids, rows, labels, strict=True) if each.startswith(b"canary-")
    ]
    demand(sorted(each for each, *_ in own) == sorted(known), "canaries-differ")
    for each, row, label in own:
        demand(is_usable(study, row, 0), "canaries-differ")
        reference, wanted = known[each]
        demand(math.dist(unit(row), unit(reference)) <= study.tolerance, "canaries-differ")
        demand(label == wanted, "canaries-differ")


def read_pack(study: Study, pack: bytes) -> Iterator[tuple[bytes, tuple[list[float], int]]]:
    """Yield the id, features and class of each canary. Refuses a pack of another form, or that does not fit the study."""
    try:
        with zipfile.ZipFile(io.BytesIO(pack)) as archive:
            stored = all(each.compress_type == zipfile.ZIP_STORED for each in archive.infolist())
            demand(stored and len(pack) <= 2**26, "study-refused")
            entries = {each: archive.read(each) for each in archive.namelist()}
        head = json.loads(entries.pop("canaries.json"))
        dim, names, labels, columns, slips, inputs = (head.pop(each) for each in PACK_FIELDS)
        tables = {each: entries.pop(each) for each in ("features", *(f"slips/{name}" for name in slips))}
        classes = [study.classes.index(each) for each in labels]
    except (KeyError, ValueError, zipfile.BadZipFile):
        demand(False, "study-refused")
    right = head == {"format": "veilsum-canaries/1"} and dim == study.dim and len(labels) == len(names) == len({*names})
    right &= all(re.fullmatch("canary-[0-9A-Za-z._-]{1,100}", each) for each in names) and 1 <= len(names) <= 10_000
    right &= not columns or len({*columns}) == len(columns) == dim
    right &= not (columns and study.question["columns"]) or {*columns} == {*study.question["columns"]}
    right &= {*entries} == {f"inputs/{each}" for each in inputs}
    right &= all(len(each) == 4 * dim * len(names) for each in tables.values())
    demand(right, "study-refused")
    order = (
        [columns.index(each) for each in study.question["columns"]]
        if columns and study.question["columns"]
        else range(dim)
    )
    for table in tables.values():
        rows = list(struct.iter_unpack(f"<{dim}f", table))
        demand(all(is_usable(study, row, 0) for row in rows), "study-refused")
    features = struct.iter_unpack(f"<{dim}f", tables["features"])
    for name, row, label in zip(names, features, classes, strict=True):
        yield name.encode(), ([row[place] for place in order], label)


def canaries(study: Study, rows: Any, labels: Sequence[int], ids: Sequence[bytes]) -> list[int]:
    """Return the places of the canaries that a rehearsal adds up, by class, each as often as it counts (periods: Rehearsals)."""
    by_class = defaultdict(list)
    for _, place in sorted((each, place) for place, each in enumerate(ids) if each.startswith(b"canary-")):
        if is_usable(study, rows[place], labels[place]):
            by_class[labels[place]].append(place)
    count = len(by_class)
    share = min(max(study.per_class, -(-study.least // count)), max(1, study.most // count))
    return [places[turn % len(places)] for _, places in sorted(by_class.items()) for turn in range(share)]


def judged(
    study: Study,
    period: str,
    rows: Any,
    labels: Sequence[int],
    ids: Sequence[bytes],
    secret: bytes,
    federation: bytes,
    taken: Collection[bytes],
    share: float,
) -> list[int]:
    """Return the places of the rows that a judgement scores; `taken` are the keys of records that were judged or marked (periods: Judgements)."""
    drawn = [
        each
        if held_out(secret, federation, each, share) and mark(secret, "judged", federation, period, each)[0] < 128
        else b""
        for each in ids
    ]
    seen, ranked = Counter[bytes](), defaultdict(list)
    for place, (row, label, each) in enumerate(zip(rows, labels, ids, strict=True)):
        rank = mark(secret, "row", federation, each, u(32, seen[each]))
        seen[each] += 1
        if is_usable(study, row, label) and drawn[place] and key(secret, federation, each) not in taken:
            ranked[each].append((rank, place))
    return sorted(place for pairs in ranked.values() for _, place in sorted(pairs)[: study.per_id])


def integers(x: Sequence[float], room: int = 4**12) -> list[int]:
    """Return the integer row of a row no longer than 1 (member: Noise)."""
    q = [round(2.0**12 * value) for value in x]
    away = {i for i, value in enumerate(x) if abs(q[i]) > abs(2.0**12 * value)}
    while sum(each * each for each in q) > room:
        i = max(sorted(away) or range(len(q)), key=lambda at: abs(q[at]))
        q[i] -= 1 if q[i] > 0 else -1
        away.discard(i)
    return q


def noiseless(study: Study, step: str, rows: Any, labels: Sequence[int], material: Mapping[str, Any]) -> list[int]:
    """Return a noisy step's vector before its noise (member: Noise)."""
    used = [(direction(row, material.get("centre")), label) for row, label in zip(rows, labels, strict=True)]
    most, values = study.most * 4**12, [*sums(study, step, used, material)]
    if study.unit == "member":
        values = shortened(study, step, values)
    return [max(-most, min(most, value)) for value in values]


def shortened(study: Study, step: str, values: list[int]) -> list[int]:
    """Shorten a member's vector to a weighted length of at most Δ."""
    parts = study.blocks(step)
    diagonal = [2.0 - (i == j) for i in range(study.widths[0]) for j in range(i, study.widths[0])]
    squares = [
        (weight / 2.0 ** (12 * degree)) ** 2 * twice
        for weight, degree, count, triangle in parts
        for twice in (diagonal * (count // len(diagonal)) if triangle else [1.0] * count)
    ]
    length = math.sqrt(math.fsum(square * value * value for square, value in zip(squares, values, strict=True)))
    bound = study.most * study.moved(step)
    return values if length <= bound else [math.trunc(value * (bound / length)) for value in values]


def direction(row: Any, centre: Any) -> list[float]:
    z = unit(row)
    if centre is None:
        return z
    apart = [value - m for value, m in zip(z, centre, strict=True)]
    return unit(apart) if any(apart) else [1.0, *[0.0] * (len(z) - 1)]


def sums(study: Study, step: str, used: Any, material: Mapping[str, Any]) -> Iterator[int]:
    statistic, classes = study.statistics[0], range(len(study.classes))
    gradient, appended = step not in {"mean", "sum"}, study.constant
    factor, entry, whole_entry = MEAN_ROW if step == "mean" else ROW
    constant = step == "mean" or (appended and not gradient)
    if statistic["kind"] == "random-features" and step != "mean":
        omega = study.directions(statistic["size"] // 2, statistic["bandwidth"])
        used = [(waves(omega, z), label) for z, label in used]
    if gradient:
        rows = [([factor * v for v in z] + [entry] if appended else z, label) for z, label in used]
        used = [(whitened(row, material), label) for row, label in rows]
    room = 4**12 - whole_entry**2 * constant
    scaled = [([value * factor for value in z] if constant else z, label) for z, label in used]
    whole = [(integers(x, room) + [whole_entry] * constant, label) for x, label in scaled]
    width = study.dim + 1 if step == "mean" else study.widths[0]
    pairs = [(i, j) for i in range(width) for j in range(i, width)]
    if step == "mean":
        yield from (sum(q[i] for q, _ in whole) for i in range(width))
    elif gradient:
        turned = [(q, residual(z, label, material)) for (q, _), (z, label) in zip(whole, used, strict=True)]
        yield from (sum(q[i] * r[c] for q, r in turned) for i in range(width) for c in classes)
    elif statistic["kind"] == "ccvr":
        yield from (4**12 * sum(label == c for _, label in whole) for c in classes)
        yield from (sum(q[i] for q, label in whole if label == c) for c in classes for i in range(width))
        yield from (sum(q[i] * q[j] for q, label in whole if label == c) for c in classes for i, j in pairs)
    else:
        yield from (sum(q[i] * q[j] for q, _ in whole) for i, j in pairs)
        yield from (sum(q[i] for q, label in whole if label == c) for i in range(width) for c in classes)


def waves(omega: Any, z: Sequence[float]) -> list[float]:
    """φ(z) (member: Exact vectors)."""
    turns = [math.fsum(map(mul, each, z)) for each in omega]
    return [wave(turn) / math.sqrt(len(omega)) for turn in turns for wave in (math.cos, math.sin)]


def whitened(s: Sequence[float], material: Mapping[str, Any]) -> list[float]:
    """Return a gradient's whitened row (member: Noise)."""
    x = [math.fsum(map(mul, line, s)) for line in material["whitening"]]
    return unit(x) if any(x) else [1.0, *[0.0] * (len(x) - 1)]


def residual(z: Sequence[float], label: int, material: Mapping[str, Any]) -> list[int]:
    columns = [*zip(*material["weights"], strict=True)]
    scores = [math.fsum(map(mul, column, z)) for column in columns]
    powers = [math.exp(score - max(scores)) for score in scores]
    r = [power / math.fsum(powers) - (c == label) for c, power in enumerate(powers)]
    return integers([value / max(0.25, math.hypot(*r)) for value in r])
