"""Rehearsals and judgements: which rows they take, a judgement's tables and material, and plays over a ledger (periods)."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors.numpy import save

from assurance.vectors.ledgers import ALL, QUESTION, answer, data, end, upload
from tests.support.simulator import simulated_content
from veilsum.study.canaries import CanaryPack

Json = dict[str, Any]
EXPIRES_S = 2_000_000
SECRET, FEDERATION = "11" * 32, "22" * 32
JUDGE: Json = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "heads": 3,
    "positive": None,
    "bins": {"confidence": 4, "score": 3},
}
ENOUGH: Json = {"least": 40, "most": 40, "least_per_class": 20, "rows_per_id": 1}
WITH_FEATURES: Json = {
    "statistics": [{"kind": "ffc"}, {"kind": "random-features", "size": 4, "bandwidth": 0.5}],
    "records": ENOUGH,
}
THREE = ["a", "b", "c"]
PACK = CanaryPack(
    ["canary-1", "canary-0", "canary-2"],
    ["left", "right", "right"],
    np.array([[3.0, 1.0], [1.0, 4.0], [2.0, 3.0]]),
)
WITH_PACK: Json = {"pack": PACK.digest, "tolerance": 0.01}


def study(rehearsal: Json | None = None, **question: Any) -> str:
    """Return a study's content."""
    given = {**QUESTION, "judge": JUDGE, **question}
    return simulated_content(given, EXPIRES_S, {"name": "both"}, rehearsal=rehearsal).to_bytes().decode()


def case(name: str, function: str, rule: str = "", **inputs: Any) -> Json:
    return {"name": name, **({"rule": rule} if rule else {}), "function": function, "input": inputs}


def cases() -> Iterator[Json]:
    """Yield all cases without their outputs."""
    yield from rehearsed()
    yield from judged()
    yield from tabulated()
    yield from shown()
    yield from plays()


def rehearsed() -> Iterator[Json]:
    own = {**data("a", 4), "labels": [0, 1, 0, 1]}
    names = ("canary-b", "canary-10", "canary-9", " CANARY-a", "canary-a", "canary-z", "canary-zero")
    rows = [[1.0, 0.0], [2.0, 1.0], [3.0, 2.0], [4.0, 3.0], [5.0, 4.0], [6.0, 5.0], [0.0, 0.0]]
    mixed: Json = {
        "rows": [*rows[:3], *own["rows"], *rows[3:]],
        "labels": [0, 0, 1, *own["labels"], 1, 0, -1, 1],
        "ids": [*names[:3], *own["ids"], *names[3:]],
    }
    few = {"least": 17, "most": 17, "least_per_class": 12, "rows_per_id": 1}
    yield case("canaries alone, in the order of their ids", "rehearsed", "PERIOD-1", content=study(), **mixed)
    yield case("no more than most", "rehearsed", content=study(records=few), **mixed)
    yield case("a class without canaries", "rehearsed", content=study(classes=THREE), **mixed)


def judged() -> Iterator[Json]:
    names = [f"patient-{row // 2}" for row in range(24)]
    rows = [[1.0 + row / 8, 2.0 - row / 16] for row in range(24)]
    given: Json = {"rows": rows, "labels": [row % 2 for row in range(24)], "ids": names}
    marked: Json = {"secret": SECRET, "federation": FEDERATION, "held_out": 0.75}
    twice = {**QUESTION["records"], "rows_per_id": 2}
    first: Json = {"content": study(), "period": "judge-1", **given, **marked, "taken": []}
    yield case("each id by its own draw, one row of each", "judged", "PERIOD-3", **first)
    yield case("two rows of each id", "judged", **{**first, "content": study(records=twice)})
    yield case("another period draws others", "judged", **{**first, "period": "judge-2"})
    yield case("unusable rows keep their ordinals", "judged", **{**first, "rows": [[0.0, 0.0], *rows[1:]], "labels": [0, 1, -1, *given["labels"][3:]]})  # fmt: skip
    yield case("nothing is held out", "judged", "PERIOD-4", **{**first, "held_out": 0.0})
    yield case(
        "ids that are spelled otherwise", "judged", **{**first, "ids": [f" {each}\u200b" for each in names]}
    )


def judged_after(found: list[Json]) -> Iterator[Json]:
    """Yield the same judgements, with some of the records judged before."""
    before = found[0]
    keys = before["output"]["keys"]
    for period in ("judge-1", "judge-2"):
        inputs = {**before["input"], "period": period, "taken": keys[::2]}
        yield case(f"{period}, some of them judged before", "judged", "PERIOD-3", **inputs)


def material(
    *heads: tuple[str, Json], temperature: float = 0.5, edges: tuple[float, ...] | None = (0.0, 0.25)
) -> Json:
    """Return the tensors of heads, as lists; each has a kind, and its tensors."""
    tensors = {
        f"{place}.{kind}.{name}": values
        for place, (kind, own) in enumerate(heads)
        for name, values in own.items()
    }
    return {**tensors, "temperature": [temperature], **({} if edges is None else {"edges": [*edges]})}


def head(*weights: list[float], **changes: Any) -> Json:
    count = len(weights[0])
    return {"weights": [*weights], "bias": [0.0] * count, "answered": [1.0] * count, **changes}


PLAIN = head([1.0, -0.5], [-0.25, 0.75])
WAVES = head([0.5, -0.5], [0.25, 0.0], [-1.0, 1.0], [0.125, 0.75])
POWERED = head([1.0, -0.5], [-0.25, 0.75], power=[0.5])


def tabulated() -> Iterator[Json]:
    rng = np.random.default_rng(7)
    rows = (rng.integers(-64, 65, (12, 2)) / 16).tolist()
    labels = [row % 2 for row in range(12)]
    three = head([1.0, 0.25, -0.5], [-0.25, 0.75, 0.5])
    lacking = {**three, "answered": [1.0, 0.0, 1.0]}
    both, random = study(), study(**WITH_FEATURES)
    of_three = {"content": study(classes=THREE), "labels": [row % 3 for row in range(12)]}
    chosen = {**of_three, "content": study(classes=THREE, judge={**JUDGE, "positive": "a"})}
    ccvr = study(statistics=[{"kind": "ccvr"}], withhold={"margin": 0}, records=ENOUGH)
    shared: Json = {"content": both, "rows": rows, "labels": labels, "members": 5, "n_min": 5}
    cells: list[tuple[str, Json, Json]] = [
        ("no rows", material(("ffc", PLAIN)), {"rows": [], "labels": []}),
        ("a linear head", material(("ffc", PLAIN)), {}),
        ("with a bias", material(("ffc", {**PLAIN, "bias": [0.25, -0.125]})), {}),
        ("of a study with a constant", material(("ffc", {**PLAIN, "bias": [0.25, -0.125]})), {"content": study(constant=True)}),
        ("centred", material(("ffc", {**PLAIN, "centre": [0.125, -0.25]})), {}),
        ("random features", material(("random-features", WAVES)), {"content": random}),
        ("the first two random features, centred", material(("random-features", {**head(*WAVES["weights"][:2]), "centre": [0.125, -0.25]})), {"content": random}),
        ("ccvr", material(("ccvr", POWERED)), {"content": ccvr}),
        ("ccvr, with power 1", material(("ccvr", {**POWERED, "power": [1.0]})), {"content": ccvr}),
        ("three heads", material(("random-features", WAVES), ("ffc", PLAIN), ("ccvr", POWERED)), {"content": random}),
        ("three classes, none positive", material(("ffc", three), edges=None), of_three),
        ("a positive class of three", material(("ffc", three)), chosen),
        ("a class that is never answered", material(("ffc", lacking), edges=None), of_three),
        ("one class is answered", material(("ffc", {**PLAIN, "answered": [1.0, 0.0]})), {}),
        ("the positive class alone is answered", material(("ffc", {**PLAIN, "answered": [0.0, 1.0]})), {}),
        ("equal scores: the first class, and the edge that the score equals", material(("ffc", head([1.0, 1.0], [2.0, 2.0]))), {}),
        ("a member of more than most rows", material(("ffc", PLAIN)), {"rows": [[3.0, 4.0]] * 41, "labels": [0] * 41}),
        ("two rows of an id, and fewer members: more noise each", material(("ffc", PLAIN)),
         {"content": study(records={**QUESTION["records"], "rows_per_id": 2}), "n_min": 4}),
    ]  # fmt: skip
    for name, arrays, change in cells:
        yield case(name, "judge-tables", **{**shared, "material": arrays, **change})


def shown() -> Iterator[Json]:
    """Yield files of heads, false ones among them (PERIOD-5)."""
    content = study(**WITH_FEATURES)
    good = material(("ffc", PLAIN), ("random-features", WAVES), ("ccvr", POWERED))
    whole = {name: np.array(values) for name, values in good.items()}
    weights = whole["0.ffc.weights"]

    def without(*names: str) -> dict[str, Any]:
        return {name: array for name, array in whole.items() if not name.startswith(names)}

    true = {
        "three heads": whole,
        "one head": without("1.", "2."),
        "the largest value, and a centre": whole
        | {"0.ffc.weights": weights * 0 + 1e6, "0.ffc.centre": np.zeros(2)},
    }
    false = {
        "no temperature": without("temperature"),
        "a temperature below the least": whole | {"temperature": np.array([1e-7])},
        "two temperatures": whole | {"temperature": np.ones(2)},
        "no edges": without("edges"),
        "an edge more": whole | {"edges": np.arange(3.0)},
        "edges that do not ascend": whole | {"edges": np.zeros(2)},
        "no heads": without("0.", "1.", "2."),
        "heads numbered from 1": without("0."),
        "four heads": whole
        | {f"3.ffc.{name}": whole[f"0.ffc.{name}"] for name in ("weights", "bias", "answered")},
        "an unknown kind": without("0.")
        | {f"0.lda.{name}": np.array(values) for name, values in PLAIN.items()},
        "no bias": without("0.ffc.bias"),
        "an unknown tensor": whole | {"0.ffc.scale": np.ones(1)},
        "a tensor of no head": whole | {"scale": np.ones(1)},
        "a power of a linear head": whole | {"0.ffc.power": np.ones(1)},
        "no power": without("2.ccvr.power"),
        "a power of 0": whole | {"2.ccvr.power": np.zeros(1)},
        "a power above 1": whole | {"2.ccvr.power": np.array([1.5])},
        "a class less": whole | {"0.ffc.weights": weights[:, :1]},
        "a row less": whole | {"0.ffc.weights": weights[:1]},
        "an odd number of random features": whole | {"1.random-features.weights": np.ones((3, 2))},
        "more random features than the study's": whole | {"1.random-features.weights": np.ones((6, 2))},
        "no class is answered": whole | {"0.ffc.answered": np.zeros(2)},
        "a class is half answered": whole | {"0.ffc.answered": np.array([1.0, 0.5])},
        "a centre of another length": whole | {"0.ffc.centre": np.zeros(3)},
        "no number": whole | {"0.ffc.weights": weights * np.nan},
        "a value above the largest": whole | {"0.ffc.weights": weights * 0 + 1_000_001.0},
        "single precision": whole | {"0.ffc.weights": weights.astype(np.float32)},
    }
    for name, tensors in true.items():
        yield heads_file(name, "", content, save(tensors))
    for name, tensors in false.items():
        yield heads_file(name, "PERIOD-5", content, save(tensors))
    yield heads_file("random features of a study without any", "PERIOD-5", study(), save(whole))
    three = study(classes=THREE)
    linear = material(("ffc", head([1.0, 0.0, 0.5], [0.0, 1.0, 0.5])))
    file = save({name: np.array(values) for name, values in linear.items()})
    yield heads_file("edges without a table by score", "PERIOD-5", three, file)
    yield heads_file("no safetensors file", "PERIOD-5", content, save(whole)[:-8])
    other = save(true["one head"])
    yield heads_file("other heads than the terms name", "PERIOD-5", content, save(whole), of_terms=other)


def heads_file(name: str, rule: str, content: str, file: bytes, *, of_terms: bytes | None = None) -> Json:
    """Return a case of a file of heads, which the terms name unless they name another."""
    digest = hashlib.sha256(of_terms or file).hexdigest()
    return case(name, "judge-material", rule, content=content, file=file.hex(), digest=digest)


BOTH = {name: [*data("a")[name], *more] for name, more in {
    "rows": PACK.features.tolist(), "labels": [*PACK.labels], "ids": [*PACK.ids],
}.items()}  # fmt: skip


def run(period: str, study: str = "both") -> Json:
    return answer(study, period)


def plays() -> Iterator[Json]:
    """Yield plays over a ledger; one that names canaries has their pack."""
    rehearsal = run("rehearsal-1")
    for rule, name, steps in (
        ("PERIOD-2", "a rehearsal that is cancelled", [rehearsal, *upload("x", "both", "rehearsal-1"), end("x", "cancelled"), run("p1")]),
        ("PERIOD-2", "a rehearsal that is lost", [rehearsal, *upload("x", "both", "rehearsal-1"), end("x", "lost"), run("p1")]),
        ("PERIOD-2", "a rehearsal that is summed, and the run after it",
         [rehearsal, *upload("x", "both", "rehearsal-1"), end("x", survivors=ALL), run("p1"), *upload("y", "both"), end("y", survivors=ALL), run("rehearsal-2")]),
        ("PERIOD-4", "a judgement without a row is answered yes", [run("judge-1")]),
        ("PERIOD-6", "a rehearsal and a judgement give up no run over data", [run("p1"), rehearsal, run("judge-1"), *upload("x", "both")]),
        ("PERIOD-6", "the next of a kind gives up those of its own kind", [run("p1"), rehearsal, run("judge-1"), run("rehearsal-2"), run("judge-2"), run("p2")]),
        ("PERIOD-6", "a judgement beside a run's attempt without an end", [run("p1"), *upload("x", "both"), run("judge-1"), run("judge-2"), end("x", survivors=ALL)]),
    ):  # fmt: skip
        given = {
            "mu_budget": 2.0,
            "watch": ["a-0", "a-19"],
            "studies": {"both": study(WITH_PACK)},
            "data": {"a": BOTH},
            "pack": PACK.to_bytes().hex(),
            "steps": steps,
        }
        yield case(name, "ledger", rule, **given)
