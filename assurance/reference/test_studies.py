"""Both implementations read studies alike: thousands of studies, most with one or two fields changed."""

import copy
import random
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rfc8785

from assurance.reference.study import Study
from assurance.reference.wire import Refused
from tests.study.specs import content_of, fields_of, spec_of, whole
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import RECIPES, Content
from veilsum.study import vectors
from veilsum.study.promise import check_noise, study_mu

# fmt: off
NOISES: tuple[Any, ...] = (
    {"epsilon": 1.0, "delta": 1e-7, "unit": "record", "recipe": "sum"},
    {"epsilon": 10, "delta": 1e-6, "unit": "member", "recipe": "mean+sum+16-gradients"},
)
JUDGE: dict[str, Any] = {
    "epsilon": 1.0, "delta": 1e-7, "heads": 1, "positive": None, "bins": {"confidence": 5, "score": 8}
}
FIELDS: list[Any] = [
    None, True, False, 0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 32, 48, 50, 64, 100, 127, 128, 255, 256, 9_999, 10_000, 10_001,
    20_000, 65_536, 65_537, 2**22, 2**31, 2**32 - 1, 2**32, 2**53 - 9, -1, 0.1, 0.5, 1.0, 1.5, 1e-5, 1e-7, 10.0, 11.0, 1e3, 1e300,
    "", "a", "gcv", "sum", "mean+sum+6-gradients", "mean+sum+16-gradients", "record", "member", "members", "anyone", "lda", "ä", "a b",
    *(" a", "cd" * 32, [], ["lda"], ["lda", "ncm"], ["ncm", "lda"], {}, {"margin": 0}, {"margin": 3}, {"margin": 4}),
    *NOISES,
    {"samples_per_class": 10, "power": 0.5},
    {"pack": "cd" * 32, "tolerance": 0.5},
    JUDGE,
    {**JUDGE, "positive": "benign", "heads": 3},
    {"confidence": 2, "score": 32},
    [f"column {place}" for place in range(16)],
    [{"kind": "ccvr"}],
    [{"kind": "ffc"}, {"kind": "random-features", "size": 16, "bandwidth": 1.0}],
    [{"kind": "random-features", "size": 64, "bandwidth": 0.1}],
    [{"kind": "ccvr"}, {"kind": "ffc"}],
]
# fmt: on


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the path and value of every leaf in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inner:
        yield path, value
    for key, each in inner:
        yield from leaves(each, (*path, key))


def changed(rng: random.Random) -> Any:
    values = whole()
    if rng.random() < 0.2:
        values["question"]["withhold"], values["notes"]["why_not_withheld"] = None, "no class is rare"
    if rng.random() < 0.2:
        values["question"]["noise"], values["question"]["withhold"] = copy.deepcopy(rng.choice(NOISES)), None
        values["notes"]["why_not_withheld"] = ""
        if rng.random() < 0.5:
            values["question"]["listable"], values["notes"]["why_not_listable"] = True, ""
    if rng.random() < 0.3:
        values["question"]["judge"] = copy.deepcopy(JUDGE)
        values["question"]["constant"] = rng.random() < 0.5
        values["question"]["columns"] = [f"f{place}" for place in range(16)]
        values["rehearsal"] = {"pack": "ab" * 32, "tolerance": 0.1}
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = [path for path, _ in leaves(values)]
        places += [path[:-1] for path in places if len(path) > 1]
        path = rng.choice(places)
        place = values
        for key in path[:-1]:
            place = place[key]
        if rng.random() < 0.05 and isinstance(place, dict):
            del place[path[-1]]
        elif type(place[path[-1]]) is int and rng.random() < 0.7:
            place[path[-1]] += rng.choice([-1, 1])
        else:
            place[path[-1]] = copy.deepcopy(rng.choice(FIELDS))
    return values


def test_both_read_the_same_studies() -> None:
    rng, accepted = random.Random(0), 0
    for _ in range(2_000):
        content = rfc8785.dumps(changed(rng))
        try:
            ours: Content | None = Content.from_bytes(content)
        except PeerFault:
            ours = None
        try:
            theirs: Study | None = Study(content)
        except Refused:
            theirs = None
        assert (ours is None) == (theirs is None), content
        if ours is not None and theirs is not None:
            accepted += 1
            assert (ours.question.digest, ours.approval) == (theirs.digest, theirs.approval)
            assert (ours.question.elements, ours.question.width) == (theirs.elements, max(theirs.widths))
            assert ours.question.noise is not None or ours.question.scale == theirs.scale
    assert accepted > 130


def test_both_refuse_white_space_at_the_ends_of_a_column_s_name() -> None:
    values, refused = (
        whole(dim=2, records={"least": 50, "most": 60, "least_per_class": 5, "rows_per_id": 1}),
        list[str](),
    )
    for code in range(0xD800):
        if unicodedata.category(chr(code)) not in {"Zs", "Zl", "Zp", "Cc", "Cf"} and code % 997:
            continue  # letters and what is unassigned, except a few
        for name in (f"{chr(code)}age", f"age{chr(code)}"):
            values["question"]["columns"] = [name, "weight"]
            content = rfc8785.dumps(values)
            try:
                Content.from_bytes(content)
            except PeerFault:
                refused.append(name)
                with pytest.raises(Refused):
                    Study(content)
            else:
                Study(content)
    assert {"\u00a0age", "age\u3000", " age", "\u200eage"} <= {*refused}
    assert "\u200bage" not in refused  # no white space in Unicode's sense


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("ridge", b"9007199254740993"),
        ("ridge", b"1000000000000000000000"),
        ("ridge", b"1" + b"0" * 400),
        ("ridge", b"-0"),
        ("purpose", b'"\xed\xa0\x80"'),
        ("purpose", '"\u202eeruc"'.encode()),
        ("purpose", b"[" * 500 + b"]" * 500),
        ("purpose", b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=lambda each: str(each[:24]),
)
def test_both_refuse_what_is_not_canonical_or_hides_something(field: str, text: bytes) -> None:
    values = whole()
    values["after" if field == "ridge" else "notes"][field] = "@@"
    content = rfc8785.dumps(values).replace(b'"@@"', text)
    with pytest.raises(PeerFault):
        Content.from_bytes(content)
    with pytest.raises(Refused):
        Study(content)


STATISTICS: list[list[Any]] = [
    [{"kind": "ffc"}],
    [{"kind": "ffc", "constant": True}],
    [{"kind": "random-features", "size": 6, "bandwidth": 0.5}],
    [{"kind": "ccvr"}],
    [{"kind": "ffc", "constant": True}, {"kind": "random-features", "size": 4, "bandwidth": 1.5}],
]


@pytest.mark.parametrize("statistics", STATISTICS, ids=lambda each: "+".join(part["kind"] for part in each))
@pytest.mark.parametrize("bits", [32, 48])
def test_both_compute_the_same_vectors(statistics: list[Any], bits: int) -> None:
    """To the last integer, except numbers that binary64's errors put midway between two integers."""
    ccvr = {"samples_per_class": 10, "power": 0.5} if {"kind": "ccvr"} in statistics else None
    fields: dict[str, Any] = {"dim": 3, "classes": ["a", "b", "c", "d"], **fields_of(*statistics), "ring_bits": bits}
    fields["records"] = {"least": 50, "most": 60, "least_per_class": 10, "rows_per_id": 1}
    spec = spec_of(withheld=(2,), after={"ccvr": ccvr}, **fields)
    study, rng = (
        Study(rfc8785.dumps(whole(**fields) | {"after": spec.content.after.model_dump(mode="json")})),
        np.random.default_rng(bits),
    )
    for rows in (0, 1, 50):
        features = rng.standard_normal((rows, 3)) * 10.0 ** rng.integers(-200, 200, (rows, 1))
        labels = rng.integers(0, 4, rows)
        ours = study.vector(features.tolist(), labels.tolist(), (2,))
        theirs = vectors.compute_vector(spec, features, labels)
        assert len(ours) == len(theirs) == study.elements_of("sum")
        assert np.abs(np.array(ours) - theirs).max() <= 1
        assert (np.array(ours) != theirs).mean() <= 0.02
        counts = vectors.compute_vector(spec_of("count", **fields), features, labels)
        assert study.count(features.tolist(), labels.tolist()) == counts.tolist()


@pytest.mark.parametrize("unit", ["record", "member"])
@pytest.mark.parametrize("statistic", [STATISTICS[0], STATISTICS[1], STATISTICS[3]], ids=lambda each: each[0]["kind"])
def test_both_make_noise_of_the_same_size(unit: str, statistic: list[Any]) -> None:
    rng, fitting = random.Random(3), 0
    for _ in range(40):
        noise = {"epsilon": 10 ** rng.uniform(-4, 1), "delta": 1e-7, "unit": unit}
        noise["recipe"] = rng.choice([*RECIPES][: 4 if statistic[0]["kind"] == "ffc" else 2])
        records = {"least": 1, "most": 2 ** rng.randint(0, 18), "least_per_class": 1, "rows_per_id": 1}
        classes = [f"c{number}" for number in range(rng.choice([2, 20, 21]))]
        values = whole(noise=noise, withhold=None, **fields_of(*statistic), records=records, classes=classes)
        if statistic[0]["kind"] == "ccvr":
            values["after"]["ccvr"] = {"samples_per_class": 10, "power": 0.5}
        study, question = Study(rfc8785.dumps(values)), content_of(values).question
        assert question.noise is not None
        assert study.mu == study_mu(question.noise)
        try:
            check_noise(question, 12, 8)
        except PeerFault as fault:
            assert fault.cause is Cause.WEAK_PARAMETERS  # noqa: PT017 - some studies are meant to be too weak
            assert not study.noise_fits(12, 8), values
        else:
            assert study.noise_fits(12, 8), values
            fitting += 1
    assert 0 < fitting < 40
