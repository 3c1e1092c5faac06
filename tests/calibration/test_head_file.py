"""Heads of every kind as arrays and notes, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from calibration import Head, KernelHead, RandomFeatures, TukeyHead
from calibration.errors import ShapeMismatch
from calibration.head_file import Calibrated, notes_in

RNG = np.random.default_rng(0)
HEADS = {
    "linear": Head(RNG.normal(size=(3, 2)), None, ()),
    "linear with a bias": Head(RNG.normal(size=(3, 2)), RNG.normal(size=2), (1,)),
    "centred": Head(RNG.normal(size=(3, 2)), None, (), centre=np.array([0.1, -0.2, 0.3])),
    "centred random features": KernelHead(
        RNG.normal(size=(4, 2)), None, (), RandomFeatures(3, 4, 0.5, b"x"), centre=np.array([0.1, -0.2, 0.3])
    ),
    "centred tukey": TukeyHead(
        RNG.normal(size=(3, 2)), None, (), None, unit=True, centre=np.array([0.1, -0.2, 0.3])
    ),
    "tukey": TukeyHead(RNG.normal(size=(3, 2)), RNG.normal(size=2), (), 0.5),
    "tukey of unit features": TukeyHead(RNG.normal(size=(3, 2)), RNG.normal(size=2), (), None, unit=True),
    "random features": KernelHead(RNG.normal(size=(4, 2)), None, (), RandomFeatures(3, 4, 0.5, b"x")),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_as_it_was(name: str) -> None:
    kept = Calibrated(HEADS[name], (1,) if HEADS[name].empty_classes else (), 0.5, {"mu": 1.0})
    again = Calibrated.of(kept.arrays, json.loads(json.dumps(kept.notes)))
    features = np.abs(RNG.normal(size=(20, 3))) + 0.1
    np.testing.assert_array_equal(again.scores(features), kept.scores(features))
    np.testing.assert_array_equal(again.predict(features), kept.predict(features))
    assert (type(again.head), again.withheld, again.temperature) == (type(kept.head), kept.withheld, 0.5)
    assert again.noise == {"mu": 1.0}
    assert (again.head.dim, again.head.classes) == (3, 2)


def test_a_class_left_out_is_never_answered() -> None:
    head = Calibrated(HEADS["linear"]).without((0,))
    assert set(head.predict(np.eye(3)).tolist()) == {1}


FALSE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {}, "a head has weights"),
    ({"weights": np.zeros((0, 2))}, {}, "a head has weights"),
    ({"weights": np.ones((3, 2), np.float32)}, {}, "a head has float64"),
    ({"weights": np.full((3, 2), np.inf)}, {}, "not finite"),
    ({"weights": np.ones((3, 2)), "bias": np.ones(3)}, {}, "a bias of"),
    ({"weights": np.ones((3, 2)), "centre": np.zeros(2)}, {}, "the centre has shape"),
    ({"weights": np.ones((3, 2)), "other": np.eye(3)}, {}, "a head has float64"),
    ({"weights": np.ones((3, 2))}, {"classes_without_records": [2]}, "are not among"),
    ({"weights": np.ones((3, 2))}, {"classes_without_records": [True]}, "whole numbers"),
    ({"weights": np.ones((3, 2))}, {"form": 3}, "as objects"),
    ({"weights": np.ones((3, 2))}, {"noise": 3}, "as objects"),
    ({"weights": np.ones((3, 2))}, {"temperature": 0.0}, "above 0 and finite"),
    ({"weights": np.ones((3, 2))}, {"form": {"kind": "quadratic"}}, "not known here"),
    ({"weights": np.ones((3, 2))}, {"form": {"kind": "tukey", "unit": True, "power": 2.0}}, "not known here"),
    (
        {"weights": np.ones((4, 2))},
        {"form": {"kind": "random-features", "mapped": 2, "size": 4, "bandwidth": -1.0, "seed": "00"}},
        "no random features",
    ),
    *(
        (
            {"weights": np.ones((2, 2))},
            {
                "form": {
                    "kind": "random-features",
                    "mapped": mapped,
                    "size": 2,
                    "bandwidth": 1.0,
                    "seed": "00",
                }
            },
            words,
        )
        for mapped, words in ((2**62, "at most"), (True, "not known here"))
    ),
    ({"weights": np.ones((3, 2))}, {"classes_without_records": [0, 1]}, "answers none"),
]


@pytest.mark.parametrize(("arrays", "notes", "words"), FALSE)
def test_what_is_no_head_is_refused(arrays: dict[str, Any], notes: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeMismatch, match=words):
        Calibrated.of(arrays, notes)


def test_notes_are_read_from_the_files_header() -> None:
    header = json.dumps({"__metadata__": {"entry": '{"a": 1}', "list": "[]"}}).encode()
    file = len(header).to_bytes(8, "little") + header
    assert notes_in(file, "entry") == {"a": 1}
    assert notes_in(file, "other") == {}
    for content, entry in ((file, "list"), (b"", "entry"), (file[:20], "entry")):
        with pytest.raises(ShapeMismatch):
            notes_in(content, entry)
    assert list(HEADS["linear"].tensors) == ["weights"]
