"""The study of docs/protocol-next.md, §4.1 and §8: a second implementation, written from that page, on Python's own JSON."""

import json
import math
import re
from fractions import Fraction
from hashlib import shake_256
from typing import Any

from tests.reference.wire import H, demand

TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*")
NAME, DIGEST, KEY = map(re.compile, (r"[a-z0-9-]{1,64}", r"[0-9a-f]{64}", r"[!-~](?:[ -~]{0,62}[!-~])?"))
LARGEST = 2**32 - 1


def number(value: float) -> str:
    """A finite double as RFC 8785 writes it (ECMAScript's Number.toString)."""
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
    """RFC 8785."""

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
            read = json.loads(content)
        except (ValueError, RecursionError):
            read = None
        form, notes, self.question, self.after = fields(read, "format", "notes", "question", "after")
        holds(form == "veilsum-study/1", canonical(read) == content)
        self._notes(notes)
        self._question(self.question)
        self._after(self.after)
        self._rules()
        self.digest = H("question", canonical(self.question))
        kept = {name: value for name, value in notes.items() if name not in {"version", "expires"}}
        self.approval = H("approval", canonical({**read, "notes": kept}))

    def _notes(self, notes: Any) -> None:
        name, version, purpose, display, expires = fields(notes, "name", "version", "purpose", "display", "expires")
        holds(text(name, NAME), whole(version, 1, LARGEST), text(purpose, TEXT, 1024), whole(expires, 0, 2**53 - 1))
        holds(isinstance(display, list))
        holds(*(text(each, TEXT, 64) and each for each in display))
        self.display = display

    def _question(self, question: Any) -> None:
        names = "extractor dim classes statistics ring_bits records thin_classes members_min members_max a h_min loss withhold noise windows"
        given = dict(zip(names.split(), fields(question, *names.split()), strict=True))
        holds(text(given["extractor"], DIGEST), whole(given["dim"], 1, 65_536), type(given["thin_classes"]) is bool)
        holds(type(given["ring_bits"]) is int and given["ring_bits"] in {32, 48})
        self.dim, self.classes = given["dim"], given["classes"]
        holds(isinstance(self.classes, list))
        holds(2 <= len(self.classes) <= 10_000)
        holds(*(text(each, KEY) for each in self.classes), len(set(map(str, self.classes))) == len(self.classes))
        self.widths, self.elements, self.kinds = list[int](), 0, list[str]()
        holds(isinstance(given["statistics"], list), given["statistics"])
        for each in given["statistics"]:
            self._statistic(each)
        order = ["ffc", "random-features", "ccvr"]
        holds(self.kinds == [kind for kind in order if kind in self.kinds])
        self.least, self.most, per_class, per_id = fields(
            given["records"], "least", "most", "least_per_class", "rows_per_id"
        )
        holds(whole(self.most, 1, LARGEST))
        holds(*(whole(each, 1, self.most) for each in (self.least, per_class, per_id)))
        self.members, self.rostered = given["members_min"], given["members_max"]
        holds(whole(self.rostered, 3, 10_000))
        holds(whole(self.members, 3, self.rostered))
        self.a, self.h = given["a"], given["h_min"]
        holds(whole(self.a, 0, 10_000), whole(self.h, 3, 10_000), whole(given["loss"], 0, 374))
        self.withhold, self.noise = given["withhold"], given["noise"]
        self.bits, self.thin = given["ring_bits"], given["thin_classes"]
        if self.withhold is not None:
            (self.margin,) = fields(self.withhold, "margin")
            holds(whole(self.margin, 0, 10_000))
        if self.noise is not None:
            epsilon, self.delta, unit, recipe = fields(self.noise, "epsilon", "delta", "unit", "recipe")
            holds(real(epsilon, 10), real(self.delta, 1e-5), unit in ["record", "member"])
            holds(recipe in ["sum", "mean+sum", "mean+sum+refinement", "mean+gradients"])
        seconds = fields(given["windows"], "enrol", "upload", "answer")
        holds(*(whole(each, 1, 2_592_000) for each in seconds))
        holds(seconds[1] + 3 * seconds[2] <= 2_592_000)

    def _statistic(self, each: Any) -> None:
        holds(isinstance(each, dict))
        kind, c = each.get("kind"), len(self.classes)
        if kind == "ffc":
            _, bias = fields(each, "kind", "bias")
            holds(type(bias) is bool)
            width = self.dim + bias
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
        self.elements += c * (1 + width + moments) if kind == "ccvr" else moments + width * c + c
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
        n_min = max(self.a + self.h, (self.members + self.a) // 2 + 1)
        rows = self.least * (n_min - self.a)
        needed = max(2 * max(self.widths), 50, Fraction(sum(width**2 for width in self.widths), self.dim))
        exact = self.noise is None
        holds(self.display == [] or len(self.display) == len(self.classes), self.members >= n_min)
        holds(self.a >= self.rostered // 4, self.elements <= 2**32)
        holds(self.withhold is None or self.margin <= self.members - n_min)
        if exact:
            holds(rows >= needed, self.withhold is not None or self.thin, self.scale >= 8)
        else:
            n_max = self.most * self.rostered
            holds(len(self.kinds) == 1, self.kinds != ["ccvr"] or self.noise["recipe"] in {"sum", "mean+sum"})
            holds(self.withhold is None, Fraction(self.delta) * n_max <= 1, self.bits == 48, n_max < 2**22)

    @property
    def scale(self) -> int:
        fits = [
            s for s in range(1, 41) if self.most * self.rostered * 2**s + -(-self.rostered // 2) < 2 ** (self.bits - 1)
        ]
        return max(fits, default=0)

    def directions(self, rows: int, bandwidth: float) -> list[list[float]]:
        """ω of random features (§8.1)."""
        pairs = -(-rows * self.dim // 2)
        stream = shake_256(b"veilsum calibration random features 1 " + self.digest).digest(16 * pairs)
        drawn = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]
        uniform = [((each >> 11) + 0.5) * 2.0**-53 for each in drawn]
        normals = []
        for one, other in zip(uniform[::2], uniform[1::2], strict=True):
            radius, angle = math.sqrt(-2 * math.log(one)), 2 * math.pi * other
            normals += [radius * math.cos(angle) / bandwidth, radius * math.sin(angle) / bandwidth]
        return [normals[row * self.dim : (row + 1) * self.dim] for row in range(rows)]
