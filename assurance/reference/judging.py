"""A judgement's tables before noise (periods: Judgements). A second implementation, written from the protocol's page alone."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from operator import mul
from typing import Any

from assurance.reference.records import direction, waves
from assurance.reference.study import Study, mu_of
from assurance.reference.wire import demand

Material = dict[str, tuple[list[int], tuple[float, ...]]]
"""Tensors by name: shape, and values row by row."""


def read(study: Study, file: bytes, digest: bytes) -> dict[str, Any]:
    """Read the material of a judgement, of this digest in its terms, as lists (PERIOD-5)."""
    demand(sha256(file).digest() == digest, "terms-refused")
    shown, classes, judge = parsed(file), len(study.classes), study.question["judge"]
    demand(all(abs(value) <= 1e6 for _, values in shown.values() for value in values), "terms-refused")
    shape, temperature = shown.get("temperature", ([], ()))
    demand(shape == [1] and 1e-6 <= temperature[0] <= 1e6, "terms-refused")
    if classes == 2 or judge["positive"] is not None:
        shape, edges = shown.get("edges", ([], ()))
        demand(shape == [judge["bins"]["score"] - 1] and sorted({*edges}) == [*edges], "terms-refused")
    else:
        demand("edges" not in shown, "terms-refused")
    heads = sorted({name.rpartition(".")[0] for name in shown} - {""})
    places = [head.partition(".")[0] for head in heads]
    demand(places == [*map(str, range(len(heads)))] and 1 <= len(heads) <= judge["heads"], "terms-refused")
    demand(
        {*shown} - {f"{head}.{name}" for head in heads for name in TENSORS} <= {"temperature", "edges"}, "terms-refused"
    )
    for head in heads:
        check_head(
            study,
            head.partition(".")[2],
            {name: shown[f"{head}.{name}"] for name in TENSORS if f"{head}.{name}" in shown},
        )
    return {name: nested(shape, values) for name, (shape, values) in shown.items()}


TENSORS = ("weights", "bias", "answered", "centre", "power")


def check_head(study: Study, kind: str, head: Material) -> None:
    classes = len(study.classes)
    names = {"weights", "bias", "answered"} | ({"power"} if kind == "ccvr" else set())
    demand(kind in {"ffc", "random-features", "ccvr"} and {*head} - {"centre"} == names, "terms-refused")
    sizes = {study.dim}
    if kind == "random-features":
        sizes = {size for each in study.statistics if each["kind"] == kind for size in range(2, each["size"] + 1, 2)}
    shape, _ = head["weights"]
    demand(len(shape) == 2 and shape[0] in sizes and shape[1] == classes, "terms-refused")
    demand(head["bias"][0] == head["answered"][0] == [classes], "terms-refused")
    answered = head["answered"][1]
    demand({*answered} <= {0.0, 1.0} and any(answered), "terms-refused")
    demand("centre" not in head or head["centre"][0] == [study.dim], "terms-refused")
    demand(kind != "ccvr" or (head["power"][0] == [1] and 0 < head["power"][1][0] <= 1), "terms-refused")


def parsed(file: bytes) -> Material:
    """Parse a safetensors file of float64 tensors."""
    try:
        (length,) = struct.unpack_from("<Q", file)
        tensors = json.loads(file[8 : 8 + length])
        tensors.pop("__metadata__", None)
        data, found, end = file[8 + length :], Material(), 0
        for name, each in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = each["data_offsets"]
            demand(each["dtype"] == "F64" and start == end, "terms-refused")
            demand(stop - start == 8 * math.prod(each["shape"]) and stop <= len(data), "terms-refused")
            found[name] = each["shape"], struct.unpack(f"<{(stop - start) // 8}d", data[start:stop])
            end = stop
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        found, end, data = {}, 0, b"no file"
    demand(end == len(data), "terms-refused")
    return found


def nested(shape: Sequence[int], values: Sequence[float]) -> list[Any]:
    if len(shape) < 2:
        return [*values]
    width = math.prod(shape[1:])
    return [nested(shape[1:], values[row * width : (row + 1) * width]) for row in range(shape[0])]


def noiseless(study: Study, rows: Any, labels: Sequence[int], shown: Mapping[str, Any]) -> list[int]:
    """Return a member's vector before its noise."""
    most = study.most * 256
    return [max(-most, min(most, each)) for each in tables(study, study.question["judge"], rows, labels, shown)]


def variance(study: Study, n_min: int) -> int:
    """Return the variance of a member's noise."""
    judge = study.question["judge"]
    count = 3 + (len(study.classes) == 2 or judge["positive"] is not None)
    sigma = study.per_id * math.sqrt(count + 0.25) / mu_of(judge["epsilon"], judge["delta"])
    own: float = ((256 * sigma) ** 2 + 4) / (n_min - study.a)
    return math.ceil(own)


def tables(
    study: Study, judge: Mapping[str, Any], rows: Any, labels: Sequence[int], shown: Mapping[str, Any]
) -> list[int]:
    """Return the tables of usable rows, flat, in steps of 2^−8. `shown` is the material, as lists."""
    classes, bins = len(study.classes), judge["bins"]
    heads = sorted({name.rpartition(".")[0] for name in shown if "." in name})
    joint = [0] * 2 ** judge["heads"]
    by_class = [[0, 0] for _ in range(classes + 1)]
    by_confidence = [[0, 0, 0] for _ in range(bins["confidence"])]
    by_score = [[0, 0] for _ in range(bins["score"])]
    positive = study.classes.index(judge["positive"]) if judge["positive"] else 1 if classes == 2 else None
    for row, label in zip(rows, labels, strict=True):
        found = [scores(study, head, shown, row) for head in heads]
        right = [each.index(max(each)) == label for each in found]
        joint[sum(2**place for place, each in enumerate(right) if each)] += 256
        first, lacking = found[0], math.isinf(found[0][label])
        by_class[classes if lacking else label][right[0]] += 256
        place, offset = confidence(first, shown["temperature"][0], bins["confidence"])
        by_confidence[place][right[0]] += 256
        by_confidence[place][2] += offset
        if positive is not None:
            score = first[positive] - max(each for c, each in enumerate(first) if c != positive)
            by_score[sum(score >= edge for edge in shown["edges"])][label == positive] += 256
    parts: list[Any] = [by_class, by_confidence, *([] if positive is None else [by_score])]
    return joint + [value for part in parts for row in part for value in row]


def scores(study: Study, head: str, shown: Mapping[str, Any], row: Sequence[float]) -> list[float]:
    weights, x = shown[f"{head}.weights"], direction(row, shown.get(f"{head}.centre"))
    kind = head.partition(".")[2]
    if kind == "random-features":
        [statistic] = [each for each in study.statistics if each["kind"] == kind]
        x = waves(study.directions(len(weights) // 2, statistic["bandwidth"]), x)
    if kind == "ccvr":
        x = [max(value, 0.0) ** shown[f"{head}.power"][0] for value in x]
    sums = [math.fsum(map(mul, x, column)) for column in zip(*weights, strict=True)]
    answered = shown[f"{head}.answered"]
    return [
        value + bias if may else -math.inf
        for value, bias, may in zip(sums, shown[f"{head}.bias"], answered, strict=True)
    ]


def confidence(first: Sequence[float], temperature: float, bins: int) -> tuple[int, int]:
    """Return the bin of the confidence, and the place in it."""
    answered = [each for each in first if math.isfinite(each)]
    sure = 1 / math.fsum(math.exp((each - max(answered)) / temperature) for each in answered)
    least = 1 / len(answered)
    place = bins * (sure - least) / (1 - least) if len(answered) > 1 else float(bins)
    bin_of = min(bins - 1, max(0, math.floor(place)))
    return bin_of, round(256 * min(0.5, max(-0.5, place - bin_of - 0.5)))
