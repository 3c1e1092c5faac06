"""A result's files: heads that the record names, and what a reader of the sum checks (analysis: Results)."""

import json
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from assurance.vectors.ledgers import EXPIRES_S, QUESTION
from tests.support.simulator import simulated_content
from veilsum.calibration import Head
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import read_content
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.result_files import Files, check_answer, encode_files, head_file
from veilsum.study.vectors import compute_vector

Json = dict[str, Any]
Fractions = npt.NDArray[np.object_]
MEMBERS, ROWS, DIM = 3, 20, 3
THREE = ["left", "middle", "right"]
MORE_ROWS: Json = {**QUESTION["records"], "least": 20}


def study(**question: Any) -> str:
    """Return a study's content."""
    given = {**QUESTION, "dim": DIM, "records": MORE_ROWS, **question}
    return simulated_content(given, EXPIRES_S, {"name": "solved"}).to_bytes().decode()


def spec_of(content: str, withheld: tuple[int, ...] = ()) -> RoundSpec:
    return RoundSpec(read_content(content.encode()), bytes(32), "", "sum", withheld, 0, 0, 1 << 20)


def solved(content: str, withheld: tuple[int, ...] = ()) -> Json:
    """Return the sum of all members' vectors, and what an honest coordinator publishes of it. The class 1 of 3 has no rows."""
    spec, rng = spec_of(content, withheld), np.random.default_rng(5)
    total: Any = 0
    for _ in range(MEMBERS):
        rows = rng.integers(-64, 65, (ROWS, DIM)) / 16
        labels = rng.integers(0, 2, ROWS) * (len(spec.question.classes) - 1)
        total = total + compute_vector(spec, rows, labels)
    answer = compute_answer(spec, read_pooled(spec, total, MEMBERS), MEMBERS)
    head = encode_files(spec, answer).head
    assert head
    case = {
        "content": content,
        "members": MEMBERS,
        "rows": answer.records,
        "ridge": answer.ridge,
        "sum": total.tolist(),
        "head": head.hex(),
    }
    return solved_exactly(case)


def read(head: bytes) -> tuple[dict[str, npt.NDArray[np.float64]], Json]:
    """Return the tensors and notes of a head's file."""
    length = int.from_bytes(head[:8], "little")
    header, body = json.loads(head[8 : 8 + length]), head[8 + length :]
    notes = json.loads(header.pop("__metadata__")["veilsum-head"])
    return {
        name: np.frombuffer(body[slice(*about["data_offsets"])]).reshape(about["shape"])
        for name, about in header.items()
    }, notes


def changed(case: Json, **tensors: Any) -> Json:
    """Return the case of a head with other tensors or notes; None leaves one out."""
    arrays, notes = read(bytes.fromhex(case["head"]))
    notes |= {each: tensors.pop(each) for each in ("form", "withheld") if each in tensors}
    arrays = {each: array for each, array in (arrays | tensors).items() if array is not None}
    return {"head": save(arrays, notes).hex()}


def save(arrays: Mapping[str, npt.NDArray[np.float64]], notes: Json) -> bytes:
    from safetensors.numpy import save as save_tensors  # noqa: PLC0415 - the name is taken

    given = {each: np.ascontiguousarray(array) for each, array in sorted(arrays.items())}
    return save_tensors(given, {"veilsum-head": json.dumps(notes, sort_keys=True)})


def heads() -> Iterator[Json]:
    """Yield heads as records name them (RESULT-8)."""
    plain, constant, empty = study(), study(constant=True), study(classes=THREE)
    without = study(classes=THREE, withhold={"margin": 0}, members_max=6)
    waves = study(statistics=[{"kind": "random-features", "size": 4, "bandwidth": 0.5}])
    made = {each: solved(each) for each in (plain, constant, empty)}
    weights = np.array([[1.0, 0.0, 0.5]] * DIM)
    hidden = head_file(spec_of(without, (1,)), Head(weights, None, (1,)))
    for name, content, given in (
        ("of a study without a constant", plain, {}),
        ("of a study with a constant", constant, {}),
        ("with a class without rows", empty, {"unanswered": [1]}),
        ("with a class withheld", without, {"unanswered": [1], "withheld": [1], "head": hidden.hex()}),
    ):
        yield head(name, content, made.get(content, {}), **given)
    whole = np.array([[1.0, 0.5]] * DIM)
    for name, content, change in (
        ("without weights", plain, {"weights": None}),
        ("of another dim", plain, {"weights": whole[1:]}),
        ("of another number of classes", plain, {"weights": whole[:, :1]}),
        ("with a bias that the study has not", plain, {"bias": np.zeros(2)}),
        ("without its bias", constant, {"bias": None}),
        ("with a centre", plain, {"centre": np.zeros(DIM)}),
        ("with a number that is too large", plain, {"weights": whole * 1e151}),
        ("without a number", plain, {"weights": whole * np.nan}),
        ("of another form", plain, {"form": {"kind": "tukey", "unit": True, "power": 0.5}}),
        ("that names a class withheld", plain, {"withheld": [1]}),
    ):  # fmt: skip
        yield head(f"a head {name}", content, changed(made[content], **change), rule="RESULT-8")
    yield head("a head that scores a class without rows", empty, {"head": save({"weights": np.ones((DIM, 3))}, {"form": {"kind": "linear"}}).hex()}, rule="RESULT-8", unanswered=[1])  # fmt: skip
    yield head("a head of every class without rows", plain, made[plain], rule="RESULT-8", unanswered=[0, 1])
    yield head("a linear head of random features", waves, made[plain], rule="RESULT-8")
    yield head("another file than the record names", plain, made[plain], rule="RESULT-8", digest="66" * 32)
    yield head("no head of a sum", plain, {"head": None}, rule="RESULT-8", digest=None)
    yield head("no safetensors file", plain, {"head": b"weights".hex()}, rule="RESULT-8")


def head(name: str, content: str, made: Json, *, rule: str = "", **given: Any) -> Json:
    """Make a case of `head`: a record's digest and classes, and the file."""
    file = given.pop("head", made.get("head"))
    inputs = {
        "content": content,
        "digest": file and sha256(bytes.fromhex(file)).hexdigest(),
        "unanswered": [],
        "withheld": [],
        "head": file,
        **given,
    }
    return {"name": name, **({"rule": rule} if rule else {}), "function": "head", "input": inputs}


def sums() -> Iterator[Json]:
    """Yield sums with their heads (RESULT-10)."""
    plain, constant, empty = solved(study()), solved(study(constant=True)), solved(study(classes=THREE))
    for name, made in (("without a constant", plain), ("with a constant", constant), ("with a class without rows", empty)):  # fmt: skip
        yield {"name": name, "function": "solution", "input": made}
    unit = 2 ** read_content(plain["content"].encode()).question.scale
    n, u, last = len(plain["sum"]) - 2, DIM * (DIM + 1) // 2, len(constant["sum"]) - 2 - 2

    def put(place: int, value: Callable[[int], int], made: Json = plain) -> Json:
        total = list(made["sum"])
        total[place] = value(total[place])
        return solved_exactly({**made, "sum": total})

    for name, made in (
        ("a count that is not whole", put(n, lambda each: each + unit // 2)),
        ("a count below 0", {**put(n, lambda each: -unit), "rows": plain["sum"][n + 1] // unit - 1}),
        ("an entry that no rows reach", put(1, lambda _: 61 * unit)),
        ("a class sum that its rows do not reach", put(u, lambda _: plain["sum"][n] + 100 * unit)),
        ("a trace of more than the rows", put(0, lambda each: each + 30 * unit)),
        ("a second moment of no rows", put(1, lambda _: 25 * unit)),
        ("class sums of no rows", put(u, lambda _: 30 * unit)),
        ("a constant's row that does not follow from the counts", put(last, lambda each: each + unit, constant)),
        ("another number of rows", {**plain, "rows": plain["rows"] + 1}),
        ("another λ", {**plain, "ridge": 2 * plain["ridge"]}),
        ("without λ", {**plain, "ridge": None}),
        ("a sum too short", {**plain, "sum": plain["sum"][:-1]}),
        ("weights of another sum", {**plain, **changed(plain, weights=np.full((DIM, 2), 0.001))}),
    ):  # fmt: skip
        yield {"name": name, "rule": "RESULT-10", "function": "solution", "input": made}


def solved_exactly(made: Json) -> Json:
    """Return a case with the head that solves its sum, each weight the nearest double, whatever the processor."""
    question = read_content(made["content"].encode()).question
    width, classes = DIM + question.constant, len(question.classes)
    exact = [Fraction(each, 2**question.scale) for each in made["sum"]]
    square = width * (width + 1) // 2
    V = np.full((width, width), Fraction(0))
    V[np.triu_indices(width)] = exact[:square]
    V += np.triu(V, 1).T
    U = np.array(exact[square : square + width * classes]).reshape(width, classes)
    W = eliminate(V + Fraction(made["ridge"]) * np.eye(width, dtype=int), U).astype(np.float64)
    tensors = (
        {"weights": W[:DIM] * 0.9**0.5, "bias": W[DIM] * 0.1**0.5} if question.constant else {"weights": W}
    )
    return {**made, **changed(made, **tensors)}


def eliminate(A: Fractions, B: Fractions) -> Fractions:
    """Solve A X = B of fractions by Gauss and Jordan's elimination; A is positive definite."""
    rows = np.concatenate([A, B], axis=1)
    for place in range(len(A)):
        rows[place] /= rows[place, place]
        for other in range(len(A)):
            if other != place:
                rows[other] -= rows[other, place] * rows[place]
    return rows[:, len(A) :]


def read_head(case: Mapping[str, Any]) -> Json:
    """Check a head against record and study (RESULT-8)."""
    from client_sdk import verification  # noqa: PLC0415 - files are made without the SDK

    file = case["head"] and bytes.fromhex(case["head"])
    record = SimpleNamespace(head=case["digest"])
    shown: Any = SimpleNamespace(head_file=file, record=record, unanswered=tuple(case["unanswered"]))
    verification.check_published(shown, spec_of(case["content"], tuple(case["withheld"])), {})
    return {}


def read_sum(case: Mapping[str, Any]) -> Json:
    """Check a sum as its reader does (RESULT-10)."""
    files = Files(bytes.fromhex(case["head"]), {}, None)
    total = np.array(case["sum"], np.int64)
    check_answer(
        spec_of(case["content"]), total, case["members"], files, rows=case["rows"], ridge=case["ridge"]
    )
    return {}
