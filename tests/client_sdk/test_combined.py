"""A head from several rounds, held against the evidence of each."""

import hashlib
from typing import Any

import pytest
from safetensors.numpy import save

from calibration import solve_ffc
from client_sdk.combined import Combined
from client_sdk.errors import PeerFault
from client_sdk.result import Result
from protocol.causes import Cause
from protocol.published import CombinedRecord, PartView
from protocol.record import sign_record
from tests.client_sdk.federation import Federation


def made(consortium: Federation, results: list[Result], **changes: Any) -> Combined:
    """What an honest coordinator would have made of them, but for the changes."""
    pooled = consortium.statistics("member-0", "a")
    for lineage in ("a", "b"):
        for member in consortium.ids:
            if (lineage, member) != ("a", "member-0"):
                pooled.merge(consortium.statistics(member, lineage))
    file = save({"weights": solve_ffc(pooled, ridge=0.1).weights})
    records = [result.record for result in results]
    values = {
        "combination": "0" * 16,
        "federation": records[0].federation,
        "parts": tuple(
            PartView.model_validate({name: getattr(each, name) for name in PartView.model_fields})
            for each in records
        ),
        "statistic": "ffc",
        "extractor": records[0].extractor,
        "vectors": 6,
        "records": pooled.records,
        "weights_sha256": hashlib.sha256(file).hexdigest(),
        "sums_sha256": "5a" * 32,
        "weights_error_bound": None,
        "solution": records[0].solution,
    }
    return Combined(sign_record(CombinedRecord(**{**values, **changes}), consortium.coordinator_key), file)


def results_of(federation: Federation, *lineages: str, **terms: Any) -> list[Result]:
    cohort, results = federation.enrol(), []
    for lineage in lineages:
        round_id = federation.coordinator.open_round(cohort, **terms)
        results.append(federation.together(federation.contributions(round_id, lineage=lineage))["member-0"])
    assert all(isinstance(result, Result) for result in results), results
    return results


def test_a_combination_follows_from_its_rounds(federation: Federation) -> None:
    results = results_of(federation, "a", "b")
    combined = made(federation, results)
    combined.verify(results, federation.admin.public)
    assert combined.weights.shape == (3, 2)
    assert combined.bias is None
    for shown in (results[:1], [], [*results[:1], *results[:1]]):
        with pytest.raises(PeerFault, match="not those of the rounds that were combined"):
            combined.verify(shown)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"federation": "ab" * 32}, "federation is"),
        ({"statistic": "ffc-bias"}, "statistic is"),
        ({"extractor": "ab" * 32}, "extractor is"),
        ({"vectors": 5}, "vectors is 5 in the record, 6 follows"),
        ({"records": 1}, "records is 1 in the record"),
        ({"weights_sha256": "ab" * 32}, "not the one that the record names"),
    ],
)
def test_a_record_that_says_something_else_is_refused(
    federation: Federation, changes: dict[str, Any], match: str
) -> None:
    results = results_of(federation, "a", "b")
    with pytest.raises(PeerFault, match=match) as caught:
        made(federation, results, **changes).verify(results)
    assert caught.value.cause is Cause.RESULT_MISMATCH


def test_parts_that_are_not_the_rounds_are_refused(federation: Federation) -> None:
    results = results_of(federation, "a", "b")
    parts = made(federation, results).record.parts
    forged = (parts[0].model_copy(update={"sums_sha256": "ab" * 32}), parts[1])
    with pytest.raises(PeerFault, match="has another sums_sha256 than the round itself"):
        made(federation, results, parts=forged).verify(results)
    unsigned = made(federation, results)
    bare = Combined(unsigned.record.model_copy(update={"signature": ""}), unsigned.weights_file)
    with pytest.raises(PeerFault) as caught:
        bare.verify(results)
    assert caught.value.cause is Cause.BAD_SIGNATURE


def test_a_lineage_in_two_rounds_is_refused(federation: Federation) -> None:
    results = results_of(federation, "a", "a")
    record = made(federation, results, records=2 * results[0].record.records)
    with pytest.raises(PeerFault, match="a lineage stands in two of the rounds"):
        record.verify(results)


def test_rounds_of_another_kind_do_not_add_up(federation: Federation) -> None:
    cohort = federation.enrol()
    results = []
    for lineage, bits in (("a", 31), ("b", 30)):
        round_id = federation.coordinator.open_round(cohort, lattice_bits=bits)
        results.append(federation.together(federation.contributions(round_id, lineage=lineage))["member-0"])
    with pytest.raises(PeerFault, match="do not sum the same thing"):
        made(federation, results).verify(results)
