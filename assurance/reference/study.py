"""A study: its content and rules (wire: Studies), the sizes of its cohorts (analysis: Sizes), its vectors and noise (docs/protocol/member.md).

A second implementation, written from the protocol's page alone, on Python's own JSON.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, cached_property
from hashlib import shake_256
from math import comb
from operator import mul
from typing import Any

from assurance.reference.wire import CONTROLS, H, Refused, demand

TEXT = re.compile(f"[^{CONTROLS}]*")
NAME, DIGEST, KEY = map(re.compile, (r"[a-z0-9-]{1,64}", r"[0-9a-f]{64}", r"[!-~](?:[ -~]{0,62}[!-~])?"))
COLUMN = re.compile(rf"(?!\s)[^{CONTROLS}]{{1,64}}(?<!\s)")
LARGEST = 2**32 - 1
TENTH, REST = (Fraction(math.isqrt(part * 2**256 // 10), 2**128) for part in (1, 9))  # √.1 and √.9
RECIPES = {
    "sum": {"sum": 1.0},
    "mean+sum": {"mean": 0.1, "sum": 0.9},
    "mean+sum+6-gradients": {"mean": 0.05, "sum": 0.2, **{f"gradient-{k}": 0.125 for k in range(1, 7)}},
    "mean+sum+16-gradients": {"mean": 0.05, "sum": 0.15, **{f"gradient-{k}": 0.05 for k in range(1, 17)}},
}


def number(value: float) -> str:
    """Write a finite double as RFC 8785 does (ECMAScript's Number.toString)."""
    if value == 0:
        return "0"
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, part = mantissa.partition(".")
    part = "" if part == "0" else part
    figures = (whole + part).lstrip("0")
    exponent = len(whole) + int(power or 0) - (len(whole + part) - len((whole + part).lstrip("0")))
    figures = figures.rstrip("0")
    sign, count = "-" * (value < 0), len(figures)
    if count <= exponent <= 21:
        return sign + figures + "0" * (exponent - count)
    if 0 < exponent <= 21:
        return sign + figures[:exponent] + "." + figures[exponent:]
    if -6 < exponent <= 0:
        return sign + "0." + "0" * -exponent + figures
    tail = f"e{'+' if exponent > 0 else '-'}{abs(exponent - 1)}"
    return sign + figures[0] + ("." + figures[1:] if figures[1:] else "") + tail


def canonical(value: Any) -> bytes:
    """Return the canonical JSON (RFC 8785)."""

    def written(each: Any) -> str:
        match each:
            case dict():
                pairs = sorted(each.items(), key=lambda pair: pair[0].encode("utf-16-be"))
                return "{" + ",".join(f"{written(k)}:{written(v)}" for k, v in pairs) + "}"
            case list():
                return "[" + ",".join(map(written, each)) + "]"
            case float():
                return number(each)
            case _:
                return json.dumps(each, ensure_ascii=False)

    return written(value).encode()


def parsed(digits: str) -> float:
    """Parse a number without point or exponent; it is a double from 2^53 on."""
    value = float(digits)
    return int(digits) if abs(value) < 2**53 else value


def whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def real(value: Any, most: float = math.inf) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and 0 < value <= most


def fields(value: Any, *names: str) -> list[Any]:
    demand(isinstance(value, dict) and set(value) == set(names), "study-refused", names)
    return [value[name] for name in names]


def holds(*conditions: Any) -> None:
    for condition in conditions:
        demand(condition, "study-refused")


def text(value: Any, pattern: re.Pattern[str], most: int = 10**6) -> bool:
    return isinstance(value, str) and len(value) <= most and pattern.fullmatch(value) is not None


class Study:
    """A study's content, read and checked."""

    def __init__(self, content: bytes) -> None:
        try:
            read = json.loads(content, parse_int=parsed)
            same = canonical(read) == content
        except (ValueError, RecursionError):
            read, same = None, False
        form, notes, self.question, self.after, rehearsal = fields(
            read, "format", "notes", "question", "after", "rehearsal"
        )
        holds(form == "veilsum-study/2", same)
        self._notes(notes)
        self._question(self.question)
        self._after(self.after)
        self.rehearses = rehearsal is not None
        if rehearsal is not None:
            self.pack, self.tolerance = fields(rehearsal, "pack", "tolerance")
            holds(text(self.pack, DIGEST), real(self.tolerance, 1))
        self._rules()
        self.name, self.version, self.expires = notes["name"], notes["version"], notes["expires"]
        self.digest = H("question", canonical(self.question))
        kept = {name: value for name, value in notes.items() if name not in {"version", "expires"}}
        self.approval = H("approval", canonical({**read, "notes": kept}))

    def _notes(self, notes: Any) -> None:
        names = ("name", "version", "purpose", "display", "expires", "why_not_listable", "why_not_withheld")
        name, version, purpose, display, expires, *self.reasons = fields(notes, *names)
        holds(*(text(reason, TEXT, 1024) for reason in self.reasons))
        holds(text(name, NAME), whole(version, 1, LARGEST), text(purpose, TEXT, 1024), whole(expires, 0, 2**53 - 1))
        holds(isinstance(display, list))
        holds(*(text(each, TEXT, 64) and each for each in display))
        self.display = display

    def _question(self, question: Any) -> None:
        names = "extractor dim columns classes constant listable statistics ring_bits records members_min members_max"
        names += " a h_min loss withhold noise judge windows"
        given = dict(zip(names.split(), fields(question, *names.split()), strict=True))
        holds(text(given["extractor"], DIGEST), whole(given["dim"], 2, 65_536))
        self.constant, self.listable, columns = given["constant"], given["listable"], given["columns"]
        holds(type(self.constant) is bool, type(self.listable) is bool, isinstance(columns, list))
        holds(*(text(each, COLUMN) for each in columns))
        holds(len(set(columns)) == len(columns) and len(columns) in {0, given["dim"]})
        holds(type(given["ring_bits"]) is int and given["ring_bits"] in {32, 48})
        self.dim, self.classes = given["dim"], given["classes"]
        holds(isinstance(self.classes, list))
        holds(2 <= len(self.classes) <= 10_000)
        holds(*(text(each, KEY) for each in self.classes), len(set(map(str, self.classes))) == len(self.classes))
        self.statistics = given["statistics"]
        self.widths, self.elements, self.kinds, self.class_elements = list[int](), 0, list[str](), 0
        holds(isinstance(self.statistics, list), self.statistics)
        for each in self.statistics:
            self._statistic(each)
        order = ["ffc", "random-features", "ccvr"]
        holds(self.kinds == [kind for kind in order if kind in self.kinds])
        holds(self.kinds == ["ccvr"] or "ccvr" not in self.kinds, "ffc" in self.kinds or not self.constant)
        records = fields(given["records"], "least", "most", "least_per_class", "rows_per_id")
        self.least, self.most, self.per_class, self.per_id = records
        holds(whole(self.most, 1, LARGEST))
        holds(*(whole(each, 1, self.most) for each in (self.least, self.per_class, self.per_id)))
        self.members, self.rostered = given["members_min"], given["members_max"]
        holds(whole(self.rostered, 3, 10_000))
        holds(whole(self.members, 3, self.rostered))
        self.a, self.h, self.loss = given["a"], given["h_min"], given["loss"]
        holds(whole(self.a, 0, 10_000), whole(self.h, 3, 10_000), whole(self.loss, 0, 374))
        self.withhold, self.noise = given["withhold"], given["noise"]
        self.bits = given["ring_bits"]
        self.margin, self.epsilon, self.unit, self.recipe = 0, 0.0, "", ""
        if self.withhold is not None:
            (self.margin,) = fields(self.withhold, "margin")
            holds(whole(self.margin, 0, 10_000))
        if self.noise is not None:
            self.epsilon, self.delta, self.unit, self.recipe = fields(self.noise, "epsilon", "delta", "unit", "recipe")
            holds(real(self.epsilon, 10), real(self.delta, 1e-5), self.unit in ["record", "member"])
            holds(self.recipe in [*RECIPES])
        if given["judge"] is not None:
            self._judge(given["judge"])
        seconds = fields(given["windows"], "enrol", "upload", "answer")
        holds(*(whole(each, 1, 2_592_000) for each in seconds))
        self.lasting = seconds[1] + 3 * seconds[2]  # the fewest seconds from an opening to its latest end
        self.pairs_within = (
            seconds[0] + 4 * seconds[2]
        )  # seconds from a card until its private keys are erased (wire: Cohorts)
        holds(self.lasting <= 2_592_000)

    def _judge(self, judge: Any) -> None:
        epsilon, delta, heads, positive, bins = fields(judge, "epsilon", "delta", "heads", "positive", "bins")
        holds(real(epsilon, 10), real(delta, 1e-5), whole(heads, 1, 3), positive is None or positive in self.classes)
        holds(Fraction(delta) * self.most * self.rostered <= 1)
        confidence, score = fields(bins, "confidence", "score")
        holds(whole(confidence, 2, 20), whole(score, 2, 32))

    def _statistic(self, each: Any) -> None:
        holds(isinstance(each, dict))
        kind, c = each.get("kind"), len(self.classes)
        if kind == "ffc":
            fields(each, "kind")
            width = self.dim + self.constant
        elif kind == "random-features":
            _, width, bandwidth = fields(each, "kind", "size", "bandwidth")
            holds(
                whole(width, 2, 65_536),
                width % 2 == 0,
                real(bandwidth, 1e3),
                bandwidth >= 0.1,
                width * self.dim <= 2**27,
            )
        else:
            holds(kind == "ccvr", *fields(each, "kind"))
            width = self.dim
        moments = width * (width + 1) // 2
        own = 1 + width + (moments if kind == "ccvr" else 0)
        self.class_elements += own
        self.elements += c * own + (0 if kind == "ccvr" else moments)
        self.kinds.append(kind)
        self.widths.append(width)

    def _after(self, after: Any) -> None:
        ridge, publish, readers, ccvr = fields(after, "ridge", "publish", "readers", "ccvr")
        holds(ridge == "gcv" or real(ridge), readers in ["members", "anyone"], isinstance(publish, list))
        holds(*(each in ["lda", "ncm", "pooled", "posterior"] for each in publish))
        holds(publish == sorted(set(publish)))
        holds((ccvr is None) != ("ccvr" in self.kinds))
        if ccvr is not None:
            samples, power = fields(ccvr, "samples_per_class", "power")
            holds(whole(samples, 1, 100_000), real(power, 1))

    def _rules(self) -> None:
        exact, n_max = self.noise is None, self.most * self.rostered
        reasons = (not self.listable, exact and self.withhold is None)
        holds(*(bool(given) == needed for given, needed in zip(self.reasons, reasons, strict=True)))
        holds(self.display == [] or len(self.display) == len(self.classes), self.a >= self.rostered // 4)
        holds(self.elements <= 2**32)
        try:
            n_min = sizes(self, self.members, self.members)[1]
        except Refused as refused:
            raise Refused("study-refused") from refused
        holds(self.withhold is None or self.margin <= self.members - n_min)
        if exact:
            holds(not self.listable, self.rows_suffice(n_min), self.scale >= 8)
            holds(self.withhold is None or self.floor <= self.members, self.withhold or self.kinds != ["ccvr"])
        else:
            holds(len(self.kinds) == 1, self.kinds != ["ccvr"] or self.recipe in {"sum", "mean+sum"})
            holds(self.withhold is None, Fraction(self.delta) * n_max <= 1, self.bits == 48, n_max < 2**22)

    def rows_suffice(self, n_min: int) -> bool:
        """Check CONTENT-20: enough rows of honest members. Noisy studies don't need it."""
        return self.noise is not None or self.least * (n_min - self.a) >= self.rows_needed

    @property
    def rows_needed(self) -> int:
        return max(50, self.need(self.elements, max(self.widths)))

    def need(self, numbers: int, width: int) -> int:
        """Return the fewest rows behind so many sums of them, whose widest second moment has so many rows (member: Enough rows)."""
        return int(self.per_id * max(2 * width, math.ceil(Fraction(2 * numbers, self.dim - 1))))

    # Steps (wire: Openings)

    @property
    def steps(self) -> list[str]:
        if self.noise is not None:
            return [*RECIPES[self.recipe]]
        return ["count", "rows", "sum"] if self.withhold is not None else ["sum"]

    def check_period(self, period: str, *, repeats: bool) -> None:
        """Check CARDS-2: almost the name of a rehearsal or judge is refused, and one that the study lacks."""
        kind = next((kind for kind in ("rehearsal", "judge") if period.startswith(kind)), "")
        if kind:
            there = self.rehearses if kind == "rehearsal" else self.question["judge"] is not None
            demand(period.startswith(kind + "-") and there and not repeats, "terms-refused")

    def steps_in(self, period: str) -> list[str]:
        return ["judge"] if period.startswith("judge-") else self.steps

    def before(self, step: str) -> str:
        """Return the step before, or an empty text."""
        return "" if step == "judge" else ["", *self.steps][self.steps.index(step)]

    def takes_material(self, step: str) -> bool:
        return step == "judge" or (self.noise is not None and step != self.steps[0])

    def bits_of(self, step: str) -> int:
        return int({"count": 32, "rows": 32, "judge": 48}.get(step, self.bits))

    def elements_of(self, step: str) -> int:
        count = len(self.classes)
        if step == "rows":
            return 8
        if step == "judge":
            judge = self.question["judge"]
            scored = int(count == 2 or judge["positive"] is not None)
            confidence, score = judge["bins"]["confidence"], judge["bins"]["score"]
            return int(2 ** judge["heads"] + 2 * (count + 1) + 3 * confidence + scored * 2 * score)
        if step in {"count", "mean"}:
            return count if step == "count" else self.dim + 1
        if step != "sum":
            return self.widths[0] * count
        return self.elements - (count if self.noise is not None and self.kinds != ["ccvr"] else 0)

    # Rare classes (member: Enough rows)

    def rare(self, holders: Sequence[int]) -> tuple[int, ...]:
        """Return the classes that these counts withhold."""
        return tuple(c for c, held in enumerate(holders) if held < self.floor)

    @property
    def floor(self) -> int:
        rows = self.need(self.class_elements, self.dim if "ccvr" in self.kinds else 0)
        holders = math.ceil(Fraction(rows, self.per_class))
        return int(max(self.h, holders) + self.a + self.margin)

    def enough_published(self, holders: Sequence[int], reached: Sequence[int]) -> bool:
        """Return whether a run may go on; `reached` is empty before the rows are counted."""
        sure = [max(0, held - self.a - self.margin) for held in reached]
        rows = Fraction(self.least, 4) * sum(map(mul, (1, 1, 1, 1, 2, 2, 4, 4), sure))
        published = len(holders) - len(self.rare(holders))
        rows_suffice = not reached or rows >= self.rows_needed
        return rows_suffice and (published >= 2 or published == len(holders))

    def like(self, other: "Study") -> bool:
        """Return whether a sum of this study may repeat one of the other (OPEN-21)."""
        parts = {name for name in self.question if self.question[name] != other.question[name]}
        free = {"extractor", "dim", "columns", "statistics", "ring_bits"}
        alike = all((kind in self.kinds) == (kind in other.kinds) for kind in ("ccvr", "random-features"))
        return bool(not parts or ("extractor" in parts and alike and parts <= free))

    # Vectors (member: Exact vectors)

    @property
    def scale(self) -> int:
        n_max, half = self.most * self.rostered, -(-self.rostered // 2)
        return max((s for s in range(1, 41) if n_max * 2**s + half < 2 ** (self.bits - 1)), default=0)

    def reach(self, rows: Any, labels: Sequence[int], withheld: Sequence[int]) -> list[int]:
        used = [(unit(row), label) for row, label in zip(rows, labels, strict=True) if label not in withheld]
        free = entries(without_sparse(used, by_class="ccvr" in self.kinds)) - len(used)
        numbers = 2 * self.per_id * self.elements
        bits = []
        for quarters in (1, 2, 3, 4, 6, 8, 12, 16):
            level = Fraction(quarters * self.least, 4)
            bits.append(int(len(used) >= level and free >= level * Fraction(numbers, self.rows_needed)))
        return bits

    def count(self, rows: Any, labels: Sequence[int]) -> list[int]:
        bits = []
        for c in range(len(self.classes)):
            own = [(unit(row), c) for row, label in zip(rows, labels, strict=True) if label == c]
            free = entries(without_sparse(own, by_class=False)) - len(own)
            bits.append(int(len(own) >= self.per_class and self.h * free >= 2 * self.per_id * self.class_elements))
        return bits

    def bears(self, rows: Any, labels: Sequence[int], n_min: int) -> bool:
        """Return whether selected rows have features enough for a sum (SELECT-4)."""
        used = [(unit(row), label) for row, label in zip(rows, labels, strict=True)]
        free = entries(without_sparse(used, by_class="ccvr" in self.kinds)) - len(used)
        return bool((n_min - self.a) * free >= 2 * self.per_id * self.elements)

    def vector(self, rows: Any, labels: Sequence[int], withheld: Sequence[int] = ()) -> list[int]:
        """Return an exact sum's vector, by exact arithmetic on the rows' `z`."""
        used = [(unit(row), label) for row, label in zip(rows, labels, strict=True) if label not in withheld]
        used = without_sparse(used, by_class="ccvr" in self.kinds)
        values = [value for each in self.statistics for value in self._values(each, used)]
        most, scale = len(used) << self.scale, Fraction(2**self.scale)
        return [min(max(round(scale * value), -most), most) for value in values]

    def _values(self, statistic: Any, used: Any) -> Iterator[Fraction]:
        kind, classes = statistic["kind"], range(len(self.classes))
        counts = [Fraction(sum(label == c for _, label in used)) for c in classes]
        rows = [([Fraction(value) for value in z], label) for z, label in used]
        if kind == "random-features":
            omega, factor = (
                self.directions(statistic["size"] // 2, statistic["bandwidth"]),
                math.sqrt(2 / statistic["size"]),
            )
            turns = [([math.fsum(map(mul, each, z)) for each in omega], label) for z, label in used]
            waves = [([factor * wave(turn) for turn in row for wave in (math.cos, math.sin)], c) for row, c in turns]
            rows = [([Fraction(value) for value in wave], label) for wave, label in waves]
        elif kind == "ffc" and self.constant:
            rows = [([*(REST * value for value in z), TENTH], label) for z, label in rows]
        width = (
            len(rows[0][0]) if rows else {"ccvr": self.dim}.get(kind, statistic.get("size", self.dim + self.constant))
        )
        pairs = [(i, j) for i in range(width) for j in range(i, width)]
        by_class = [[z for z, label in rows if label == c] for c in classes]
        if kind == "ccvr":
            yield from counts
            yield from (sum((z[i] for z in held), Fraction()) for held in by_class for i in range(width))
            yield from (sum((z[i] * z[j] for z in held), Fraction()) for held in by_class for i, j in pairs)
            return
        yield from (sum((z[i] * z[j] for z, _ in rows), Fraction()) for i, j in pairs)
        yield from (sum((z[i] for z in held), Fraction()) for i in range(width) for held in by_class)
        yield from counts

    def directions(self, rows: int, bandwidth: float) -> list[list[float]]:
        """Return ω of random features (member: Exact vectors)."""
        pairs = -(-rows * self.dim // 2)
        stream = shake_256(b"veilsum calibration random features 1 " + self.digest).digest(16 * pairs)
        drawn = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]
        uniform = [((each >> 11) + 0.5) * 2.0**-53 for each in drawn]
        normals = []
        for one, other in zip(uniform[::2], uniform[1::2], strict=True):
            radius, angle = math.sqrt(-2 * math.log(one)), 2 * math.pi * other
            normals += [radius * math.cos(angle) / bandwidth, radius * math.sin(angle) / bandwidth]
        return [normals[row * self.dim : (row + 1) * self.dim] for row in range(rows)]

    # Noise (member: Noise)

    @cached_property
    def mu(self) -> float:
        return mu_of(self.epsilon, self.delta) if self.noise is not None else 0.0

    def blocks(self, step: str) -> list[tuple[float, int, int, bool]]:
        """Return the weight, degree and length of each block of a noisy step's vector, and whether it is a row of triangles."""
        count, width = len(self.classes), self.widths[0]
        w, triangle = 1.0 if count <= 20 else 2.0, width * (width + 1) // 2
        if step == "mean":
            return [(1.0, 1, self.dim + 1, False)]
        if step != "sum":
            return [(1.0, 2, width * count, False)]
        if self.kinds == ["ccvr"]:
            return [(0.5, 2, count, False), (w, 1, count * width, False), (1.0, 2, count * triangle, True)]
        return [(1.0, 2, triangle, True), (w, 1, width * count, False)]

    def moved(self, step: str) -> float:
        """Return Δ₁."""
        return math.sqrt(sum(weight**2 for weight, *_ in self.blocks(step)))

    def variances(self, step: str, n_min: int) -> set[int]:
        """Return the variances of a member's noise in the elements of a step's blocks."""
        delta = self.moved(step) * (self.per_id if self.unit == "record" else self.most)
        sigma = delta / (self.mu * math.sqrt(RECIPES[self.recipe][step]))
        steps = [
            sigma * 2.0 ** (12 * degree) / weight / math.sqrt(over)
            for weight, degree, _, triangle in self.blocks(step)
            for over in (1, 2)[: 1 + triangle]
        ]
        return {math.ceil((each**2 + 4) / (n_min - self.a)) for each in steps}

    def noise_fits(self, n: int, n_min: int) -> bool:
        """Return whether a cohort's noise is large enough to be shared and small enough for the ring."""
        drawn = {v for step in self.steps for v in self.variances(step, n_min)} if self.noise is not None else {16}
        room = self.most * self.rostered * 4**12 + 12 * (math.isqrt(n * max(drawn)) + 1)
        return self.noise is None or (min(drawn) >= 16 and max(drawn) < 2**62 and room < 2**47)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest multiple of 2^−30 whose μ spends at most δ."""
    low, high = 0, 2**36
    while high - low > 1:
        middle = (low + high) // 2
        mu = middle * 2.0**-30
        tails = [math.erfc((epsilon / mu + sign * mu / 2) / math.sqrt(2)) / 2 for sign in (-1, 1)]
        spends = tails[0] - math.exp(epsilon) * tails[1]
        low, high = (middle, high) if spends <= delta else (low, middle)
    return low * 2.0**-30


def unit(row: Any) -> list[float]:
    """Scale a used row to length 1 (member: Exact vectors)."""
    top = max(abs(float(value)) for value in row)
    scaled = [float(value) / top for value in row]
    norm = math.sqrt(math.fsum(value * value for value in scaled))
    return [value / norm for value in scaled]


def without_sparse(used: Any, *, by_class: bool) -> list[tuple[list[float], int]]:
    """Set features to 0 that fewer than five of the rows have, or of whose squares one row holds more than half (member: Exact vectors)."""
    groups = {
        label if by_class else 0: [[*z] for z, each in used if not by_class or each == label] for _, label in used
    }
    kept = {group: [*map(is_kept, zip(*zs, strict=True))] for group, zs in groups.items()}
    return [
        ([value if keep else 0.0 for value, keep in zip(z, kept[label if by_class else 0], strict=True)], label)
        for z, label in used
    ]


def entries(used: Any) -> int:
    """Count the features that are not zero."""
    return sum(value != 0 for z, _ in used for value in z)


def is_kept(column: Sequence[float]) -> bool:
    squares = [value * value for value in column]
    total = 0.0
    for square in squares:
        total += square
    return sum(value != 0 for value in column) >= 5 and 2 * max(squares) <= total


@cache
def least(n: int, marked: int, sample: int, odds: int) -> int:
    """Return the least `c` with `P[Hyp(n, marked, sample) > c]·odds ≤ 1` (analysis: Sizes)."""
    most, tail, every = min(marked, sample), 0, comb(n, sample)
    ways = comb(marked, most) * comb(n - marked, sample - most)  # of drawing so many
    while (tail + ways) * odds <= every:
        tail += ways
        ways = ways * most * (n - marked - sample + most) // ((marked - most + 1) * (sample - most + 1))
        most -= 1
    return most


def sizes(study: Study, n: int, roster: int, came: int = 0, nominees: int = 0, *, fresh: bool = True) -> Any:
    """Return `a_D, n_min, t, k, D_max` and the number of decryptors, for `n` members of a roster, `came` of whose nominees came (analysis: Sizes)."""
    lost = n * study.loss // 1000

    def drawn(losses: int, odds: int, lost_odds: int) -> Any:
        """Yield the samples larger than their colluders and `losses` times their dropouts together, smallest first."""
        bounds = ((w, least(n, study.a, w, odds), least(n, lost, w, lost_odds)) for w in range(losses, n))
        return (each for each in bounds if n > 200 and each[0] > each[1] + losses * each[2])

    n_min = max(study.a + study.h, (roster + study.a) // 2 + 1) if fresh else n
    demand(n >= n_min and (n >= study.members or not fresh), "cohort-too-small")
    counted = fresh and getattr(study, "withhold", None) is not None
    demand(not counted or n >= max(n_min + study.margin, study.floor), "cohort-too-small")
    decrypt, a_d = came, min(study.a, (nominees - 1) // 3)
    if not nominees:
        decrypt, a_d, _ = next(drawn(2, 1 << 80, 1 << 30), (n, study.a, 0))
    w, _, d_max = next(drawn(1, n << 80, n << 20), (n, 0, 0))
    k, d_max = (2 * w, d_max) if 2 * w < n - 1 and (n > 1000 or 6 * w <= n - 1) else (n - 1, 0)
    t = (decrypt + a_d) // 2 + 1
    demand(1000 >= decrypt >= max(2, t) and a_d >= min(study.a, 1), "cohort-too-small")
    return a_d, n_min, t, k, d_max, decrypt
