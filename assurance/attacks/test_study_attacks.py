"""Attacks on studies, in more cases than `test_ten_attacks` plays against the service: fields, floors, reveals, ids and charges."""

from __future__ import annotations

import copy
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assurance.attacks.studies import (
    DIM,
    NOISE,
    RECORD_RULES,
    Json,
    QuickReservations,
    noiseless,
    read,
    refusal,
    rows_of,
    whole,
)
from client_sdk.records import Records, Selection, select_rows
from client_sdk.reservations import Reservations, State
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Content
from veilsum.study.promise import mechanism_of
from veilsum.study.vectors import compute_vector

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def selected(ledger: Reservations, content: Content, data: Records, **budget: Any) -> Selection:
    """Return the free rows that a run of the study would sum."""
    question, marks = content.question, ledger.marks_in(b"f" * 32)
    return select_rows(data, question, marks, partial(ledger.free_records, question=question, **budget))


# 1. A lattice that gives rows back, or too few rows


def test_1_too_few_rows_are_refused_at_signing() -> None:
    """Every signed study has 50 rows of honest members, two for each row of V, and twice as many unknowns in them as sums."""
    random, taken = Random(1), 0
    for _ in range(400):
        dim, a = random.choice((2, 3, 8, 30, 64)), random.randint(0, 4)
        size = random.choice((2, 6, 20))
        constant, count = random.random() < 0.5, random.randint(1, 2)
        kinds = [{"kind": "ffc"}, {"kind": "random-features", "size": size, "bandwidth": 1.0}]
        values = whole()
        values["question"] |= {
            "dim": dim,
            "a": max(a, 3),
            "members_min": random.randint(6, 12),
            "constant": constant,
            "statistics": kinds[:count],
            "records": {**RECORD_RULES, "least": random.randint(1, 60), "most": 60},
        }
        if refusal(values) is not None:
            continue
        taken += 1
        question = read(values).question
        least = max(question.a + question.h_min, (question.members_min + question.a) // 2 + 1)
        rows = question.records.least * (least - question.a)
        widths, classes = [dim + constant, size][:count], len(question.classes)
        assert rows >= max(50, 2 * max(widths))
        numbers = sum(width * (width + 1) // 2 + width * classes + classes for width in widths)
        assert rows * (dim - 1) >= 2 * numbers
    assert 20 < taken < 380


# 5. Studies that differ in one field


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all fields, including blocks and lists."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in pairs:
        yield from leaves(inner, (*path, name))


def changes_of(value: Any) -> list[Any]:
    """Return other values for a field."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2, 0]
    if isinstance(value, float):
        return [value * 1.5, value / 2]
    if isinstance(value, str):
        return [value[:-1] + ("b" if value.endswith("a") else "a"), "anyone", "mean+sum", "member"]
    if isinstance(value, list):
        return [value[::-1], value[:1], [*value, *value[:1]], [*value, "c"]]
    if value is None:
        return [{"margin": 0}, {"margin": 1}, NOISE, {"samples_per_class": 10, "power": 0.5}]
    return [None]


def changed(values: Json, path: tuple[Any, ...], value: Any) -> Json:
    other = copy.deepcopy(values)
    place = other
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return other


def vectors_of(content: Content, features: Any, labels: Any) -> list[bytes]:
    """Return members' vectors at the first and last step, with noise from one seed."""
    question, sizes = content.question, content.question.smallest
    sent = []
    for step in question.steps[:1] + question.steps[-1:]:
        if question.takes_material(step):
            continue
        spec = RoundSpec(
            content, bytes(32), "p", step, (), sizes.quorum.members, sizes.quorum.survivors_min, 1 << 20
        )
        random = Random(5)
        matrix = features[:, : question.dim] if question.dim <= features.shape[1] else None
        if matrix is None:
            continue
        sent.append(
            compute_vector(spec, matrix, labels, random_bytes=random.randbytes).tobytes()
            + step.encode()
            + bytes([spec.ring_bits])
        )
    return sent


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"withhold": {"margin": 1}, "members_min": 8},
        {
            "constant": True,
            "statistics": [{"kind": "ffc"}, {"kind": "random-features", "size": 2, "bandwidth": 1.0}],
        },
        {
            "statistics": [{"kind": "ccvr"}],
            "withhold": {"margin": 1},
            "members_min": 8,
            "records": {**RECORD_RULES, "least_per_class": 4},
        },
        {"noise": NOISE, "ring_bits": 48},
        {"noise": {**NOISE, "recipe": "mean+sum"}, "ring_bits": 48},
    ],
)
def test_5_whatever_changes_a_vector_changes_the_question(question: Json) -> None:
    """Notes and `after` change no vector; two studies with different vectors have different questions."""
    values = whole(**question)
    rng = np.random.default_rng(3)
    features, labels = rng.standard_normal((40, 4)), rng.integers(0, 4, 40)
    content = read(values)
    honest = vectors_of(content, features, labels)
    taken = 0
    for path in leaves(values):
        value: Any = values
        for name in path:
            value = value[name]
        for other in changes_of(value):
            try:
                found = read(changed(values, path, other))
            except PeerFault:
                continue
            taken += 1
            if path[0] == "question":
                assert found == content or found.question.digest != content.question.digest, path
            else:
                assert found.question.digest == content.question.digest, path
                assert vectors_of(found, features, labels) == honest, path
            kept = path[:2] in {("notes", "version"), ("notes", "expires")}
            assert found == content or (found.approval == content.approval) == kept, path
    assert taken > 20


def test_5_a_record_answers_one_question_of_an_extractor(tmp_path: Path) -> None:
    """Whatever questions are asked, and in whatever order, an id is in one exact run, or in its repeats under other extractors."""
    contents = [
        read(whole(**change))
        for change in (
            {},
            {"h_min": 4, "members_min": 9},
            {"loss": 50},
            {"ring_bits": 48},
            {"constant": True},
            {"extractor": "cd" * 32},
        )
    ]
    for seed in range(12):
        random, ledger = Random(seed), QuickReservations(tmp_path / str(seed))
        for _ in range(12):
            content, period = random.choice(contents), f"p{random.randrange(3)}"
            if ledger.find_run(content.question.digest, period) is not None:
                continue
            data = rows_of(0, random.randrange(3) * 12, 24)
            ledger.answer_run(content, period, selected(ledger, content, data))
            held = [run for run in ledger.list_runs() if run.state is State.RESERVED]
            if held and not random.randrange(4):
                ledger.give_up(random.choice(held))
        with ledger._database.read() as database:
            twice = database.execute(
                "SELECT record FROM held JOIN run ON run.id = held.run WHERE NOT freed GROUP BY record HAVING COUNT(*) > 1"
            ).fetchall()
        assert not twice


# 10. Noise


@pytest.mark.parametrize("unit", ["record", "member"])
@pytest.mark.parametrize(
    "statistic",
    [{"kind": "ffc"}, {"kind": "ccvr"}, {"kind": "random-features", "size": 6, "bandwidth": 1.0}],
    ids=lambda each: each["kind"],
)
def test_10_one_id_moves_a_noisy_vector_by_no_more_than_delta(
    unit: str, statistic: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds if the member has more rows than `most`, and ids with more rows than `rows_per_id`."""
    noiseless(monkeypatch)
    records = {"least": 1, "most": 12, "least_per_class": 1, "rows_per_id": 3}
    content = read(
        whole(statistics=[statistic], records=records, noise={**NOISE, "unit": unit}, ring_bits=48)
    )
    question = content.question
    sizes = question.smallest.quorum
    ledger = QuickReservations(tmp_path)
    marks = ledger.marks_in(b"f" * 32)
    rng = np.random.default_rng(8)
    ids = np.array([f"id-{number}" for number in rng.integers(0, 9, 40)])
    features, labels = (
        rng.standard_normal((40, DIM)) * 10.0 ** rng.integers(-3, 4, (40, 1)),
        rng.integers(0, 3, 40),
    )
    features[3] = np.nan
    features[:12] = features[:1] if np.isfinite(features[0]).all() else 1.0  # rows in one direction add up

    for step in question.steps:
        spec = RoundSpec(content, bytes(32), "p", step, (), sizes.members, sizes.survivors_min, 1 << 20)
        mechanism = mechanism_of(spec)
        weights = mechanism.release.element_weights(mechanism.lattice)

        def sent(keep: Any, spec: RoundSpec = spec) -> Any:
            data = Records(features[keep], labels[keep], ids[keep].tolist())
            found = select_rows(data, question, marks, set)
            return compute_vector(spec, found.features, found.labels)

        whole_vector = sent(np.ones(40, bool))
        assert whole_vector.any()
        if unit == "member":
            assert np.linalg.norm(whole_vector * weights) <= mechanism.sensitivity * (1 + 1e-12)
            continue
        for each in sorted(set(ids)):
            moved = (whole_vector - sent(ids != each)) * weights
            assert np.linalg.norm(moved) <= mechanism.sensitivity * (1 + 1e-12), each
