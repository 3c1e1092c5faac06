"""A head from several rounds, checked against each round's evidence."""

import hashlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from client_sdk.combined import Combined
from client_sdk.result import Result
from tests.support.consortium import DIM, Consortium
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.record import CombinedRecord, PartView, SolutionView, sign_record
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.result_files import encode_files


def made(consortium: Consortium, results: list[Result], **changes: Any) -> Combined:
    """Return an honest coordinator's combination, with some changes."""
    spec, records = results[-1].spec, [result.record for result in results]
    sums = [load(consortium.operator.sums(each.round))["sum"] for each in records]
    vectors = 3 * len(results)
    found = compute_answer(spec, read_pooled(spec, np.sum(sums, axis=0), vectors), vectors)
    file = encode_files(spec, found).head
    assert file is not None
    values = {
        "combination": "0" * 16,
        "federation": records[-1].federation,
        "study": records[-1].study,
        "name": records[-1].name,
        "version": records[-1].version,
        "question": spec.question.digest.hex(),
        "parts": tuple(
            PartView.model_validate({name: getattr(each, name) for name in PartView.model_fields})
            for each in records
        ),
        "vectors": vectors,
        "rows": found.records,
        "head": hashlib.sha256(file).hexdigest(),
        "sums": "5a" * 32,
        "error_bound": None,
        "solution": SolutionView(),
    }
    return Combined(sign_record(CombinedRecord(**{**values, **changes}), consortium.coordinator_key), file)


@pytest.fixture(scope="module")
def combined(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Consortium, list[Result]]:
    """Two periods of a federation, with the results of both."""
    consortium = Consortium(stage, tmp_path_factory.mktemp("combined"))
    return consortium, results_of(consortium, "p1", "p2")


def results_of(consortium: Consortium, *periods: str) -> list[Result]:
    results = [consortium.run(consortium.enrol(period))["member-0"] for period in periods]
    assert all(isinstance(result, Result) for result in results), results
    return results


def test_a_combination_follows_from_its_rounds(combined: tuple[Consortium, list[Result]]) -> None:
    consortium, results = combined
    found = made(consortium, results)
    found.verify(results, consortium.admin.public)
    assert found.weights.shape == (DIM, 2)
    assert found.bias is None
    features, labels = consortium.data("member-0")
    assert (found.predict(features) == labels).mean() > 0.5
    np.testing.assert_allclose(found.probabilities(features, temperature=0.1).sum(axis=1), 1)
    for shown in (results[:1], [], [*results[:1], *results[:1]]):
        with refused("result-mismatch", "coordinator"):
            found.verify(shown)


@pytest.mark.parametrize(
    "changes",
    [
        {"federation": "ab" * 32},
        {"study": "ab" * 32},
        {"name": "other"},
        {"version": 2},
        {"question": "ab" * 32},
        {"withheld": (1,)},
        {"vectors": 5},
        {"rows": 1},
        {"head": "ab" * 32},
        {"solution": SolutionView(empty_classes=(1,))},
        {"solution": SolutionView(empty_classes=(2,))},
    ],
)
def test_a_record_that_says_something_else_is_refused(
    combined: tuple[Consortium, list[Result]], changes: dict[str, Any]
) -> None:
    consortium, results = combined
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        made(consortium, results, **changes).verify(results)


def test_parts_that_are_not_the_rounds_are_refused(combined: tuple[Consortium, list[Result]]) -> None:
    consortium, results = combined
    parts = made(consortium, results).record.parts
    forged = (parts[0].model_copy(update={"sums": "ab" * 32}), parts[1])
    with refused("result-mismatch", "coordinator"):
        made(consortium, results, parts=forged).verify(results)
    unsigned = made(consortium, results)
    bare = Combined(unsigned.record.model_copy(update={"signature": ""}), unsigned.head_file)
    with refused("bad-signature", "coordinator"):
        bare.verify(results)


def test_rounds_of_another_question_or_for_other_readers_do_not_add_up(
    combined: tuple[Consortium, list[Result]],
) -> None:
    consortium, results = combined
    consortium.publish(consortium.make_study({"version": 2}, loss=90))
    other = results_of(consortium, "p3")
    consortium.after["readers"] = "anyone"
    consortium.publish(consortium.make_study({"version": 3}))
    for each in (other, results_of(consortium, "p4")):
        with refused("result-mismatch", "coordinator"):
            made(consortium, [results[0], *each]).verify([results[0], *each])
