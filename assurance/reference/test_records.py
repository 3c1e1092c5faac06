"""Both implementations select the same rows, and turn them into the same integers before noise."""

import random
from typing import Any

import numpy as np
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from assurance.reference import records
from assurance.reference.study import Study
from client_sdk.records import Marks, Records, normalise_id, select_rows
from tests.study.specs import fields_of, spec_of, whole
from tests.support.id_texts import ID_TEXTS
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.study import RECIPES
from veilsum.study import result_files
from veilsum.study.vectors import compute_vector

NOISE = {"epsilon": 8.0, "delta": 1e-7, "unit": "record"}
KINDS: list[dict[str, Any]] = [
    {"kind": "ffc"},
    {"kind": "ffc", "constant": True},
    {"kind": "random-features", "size": 6, "bandwidth": 0.7},
    {"kind": "ccvr"},
]


@given(ID_TEXTS.map(str.encode) | st.binary(max_size=12))
def test_both_spell_an_id_alike(raw: bytes) -> None:
    assert records.spelled(raw) == normalise_id(raw)


@pytest.mark.parametrize("seed", range(30))
def test_both_select_the_same_rows(seed: int) -> None:
    """With ids of many rows, unusable rows and records that are not free; with noise, and without ids."""
    rng = random.Random(seed)
    per_id = rng.choice([1, 3, 60])
    limits = {"least": 50 * per_id, "most": 60 * per_id, "least_per_class": 2 * per_id, "rows_per_id": per_id}
    noise = {**NOISE, "recipe": "sum"} if seed % 3 == 0 else None
    values = whole(dim=2, records=limits, noise=noise, **({"withhold": None} if noise else {}))
    study, question = Study(rfc8785.dumps(values)), spec_of(**values["question"]).question
    count, secret, federation = rng.choice([0, 5, 200]), rng.randbytes(32), rng.randbytes(32)
    rows = [
        [rng.choice([0.0, 0.0, 1.0, 5e-324, 1e300, float("nan")]), rng.gauss(0, 1) * (rng.random() < 0.8)]
        for _ in range(count)
    ]
    labels = [rng.randint(-1, len(study.classes)) for _ in range(count)]
    ids = [b"id-%d" % rng.randrange(80) for _ in range(count)] if noise or seed % 3 == 1 else None
    taken = {records.key(secret, federation, b"id-%d" % each) for each in range(0, 80, 7)}
    given = Records(np.array(rows).reshape(count, 2), np.array(labels, int), ids)
    share = rng.choice([0.0, 0.1, 0.5])
    found = select_rows(given, question, Marks(secret, federation, share), lambda keys: set(keys) - taken)
    chosen = records.select(study, rows, labels, ids, secret, federation, taken, share)
    assert given.features[chosen].tobytes() == found.features.tobytes()
    assert [labels[place] for place in chosen] == found.labels.tolist()
    assert len(chosen) <= 60 * per_id or noise


def test_both_shorten_rows_alike() -> None:
    """With rows on the sphere, of all lengths, and between two integers."""
    rng, lattice, shortened = np.random.default_rng(0), FeaturesLattice(), 0
    for trial in range(3_000):
        x = rng.standard_normal(rng.integers(1, 40)) * rng.choice([1, 1e-3], p=[0.9, 0.1])
        x /= np.linalg.norm(x) * (1 if trial % 3 else rng.uniform(1, 4))
        x = np.round(x * 2**13) / 2**13 if trial % 4 == 0 else x
        factor, _, constant = (records.MEAN_ROW, records.ROW, (1.0, 0.0, 0))[trial % 5 % 3]
        scaled = x * factor
        ours = records.integers(scaled.tolist(), 4**12 - constant**2) + [constant] * (constant > 0)
        assert ours == lattice.encode_rows(scaled[None], constant=constant)[0].tolist()
        shortened += ours[: len(x)] != np.rint(scaled * 2**12).tolist()
    assert shortened > 300


@pytest.mark.parametrize("statistic", KINDS, ids=lambda each: f"{each['kind']}-{each.get('constant')}")
@pytest.mark.parametrize("recipe", RECIPES)
def test_both_make_the_same_noisy_vectors_but_for_the_noise(
    statistic: dict[str, Any], recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last integer. A binary64 product or a cosine may lie between two integers, and then a row differs by one."""
    monkeypatch.setattr(Mechanism, "add_noise", lambda *_: None)
    if statistic["kind"] == "ccvr" and len(RECIPES[recipe]) > 2:
        return
    limits = {"least": 1, "most": 12, "least_per_class": 1, "rows_per_id": 2}
    fields: dict[str, Any] = {"dim": 3, "classes": ["a", "b", "c"], "records": limits}
    fields |= fields_of(statistic)
    fields |= {"noise": {**NOISE, "recipe": recipe}, "withhold": None, "ring_bits": 48}
    after = {"ccvr": {"samples_per_class": 10, "power": 0.5} if statistic["kind"] == "ccvr" else None}
    spec = spec_of("mean" if recipe != "sum" else "sum", after=after, **fields)
    study = Study(rfc8785.dumps(whole(**fields) | {"after": spec.content.after.model_dump(mode="json")}))
    rng = np.random.default_rng(len(recipe))
    for step in ("mean", "sum", "gradient-6"):
        if step not in spec.question.steps:
            continue
        spec = spec_of(step, after=after, **fields)
        for rows in (0, 1, 9, 40):
            features, labels = rng.standard_normal((rows, 3)), rng.integers(0, 3, rows)
            material = {name: rng.uniform(-1, 1, shape) for name, shape in result_files.material_shapes(spec).items()}
            if "centre" in material and rows == 9:  # one row is the centre
                features[4], material["centre"] = (0, 2, 0), np.array([0.0, 1.0, 0.0])
            theirs = compute_vector(spec, features, labels, material)
            listed = {name: array.tolist() for name, array in material.items()}
            ours = np.array(records.noiseless(study, step, features.tolist(), labels.tolist(), listed))
            assert len(ours) == len(theirs) == study.elements_of(step)
            if step in {"mean", "sum"} and statistic["kind"] != "random-features":
                assert np.array_equal(ours, theirs)
            else:
                assert np.abs(ours - theirs).max() <= 2**13
                # One integer of a residual moves all features of its class.
                assert step.startswith("gradient") or (ours != theirs).mean() <= 0.1
