"""A judgement's tables before noise (periods: Judgements). A second implementation, written from the protocol's page alone."""

import math
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any

from assurance.reference.records import direction, waves
from assurance.reference.study import Study


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
