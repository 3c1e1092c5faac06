from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.study.specs import clouds, fields_of, noisy, spec_of
from veilsum.calibration import FFCStatistics, Head, solve_ffc, solve_lda
from veilsum.calibration.answer import REFUSED_NOTE
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.random_features import KernelHead
from veilsum.protocol import statistics
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.statistics import FFC, RandomFeaturesFFC
from veilsum.protocol.study import RECIPES, CCVRHead
from veilsum.study.answers import compute_answer, document_names, read_pooled, solve_alone
from veilsum.study.result_files import (
    Files,
    calibrated_in,
    check_answer,
    check_head,
    document_in,
    encode_files,
    file_bytes_max,
    read_material,
)
from veilsum.study.vectors import compute_vector

DIM, NAMES = 8, ["a", "b", "c", "d"]
LINEAR: dict[str, Any] = {"kind": "ffc", "constant": True}
KERNEL: dict[str, Any] = {"kind": "random-features", "size": 16, "bandwidth": 0.7}
CCVR: dict[str, Any] = {"kind": "ccvr"}


def check_declared(spec: Any, published: Files) -> None:
    """Check the files of an answer against what a member may fetch of it."""
    assert set(published.documents) == document_names(spec)
    files = {"": published.head, **published.documents, "material": published.material}
    assert all(len(content or b"") <= file_bytes_max(spec) for content in files.values())


def exact(*statistics: Any, after: Any = None, **more: Any) -> Any:
    return spec_of(dim=DIM, classes=NAMES, **fields_of(*statistics), after=after, **more)


def members(rows: int = 60) -> list[Any]:
    return [clouds(rows, DIM, len(NAMES), seed, noise=0.7) for seed in range(12)]


def summed(spec: Any, material: Any = None, rows: int = 60) -> Any:
    drawn = np.random.default_rng(4).bytes
    return np.sum([compute_vector(spec, x, y, material, drawn) for x, y in members(rows)], axis=0)


def answered(spec: Any, material: Any = None, rows: int = 60) -> Any:
    return compute_answer(spec, read_pooled(spec, summed(spec, material, rows), 12), 12, material)


def everybody(rows: int = 60) -> Any:
    return tuple(np.concatenate(parts) for parts in zip(*members(rows), strict=True))


def test_an_exact_head_is_the_plain_solution() -> None:
    found = answered(exact(LINEAR))
    plain = FFCStatistics(DIM, 4, constant=True, normalise=True)
    plain.update(*everybody())
    expected = solve_ffc(plain)
    assert (found.chosen_by, found.ridge, found.records) == ("gcv", expected.ridge, 720)
    assert np.abs(found.head.weights - expected.weights).max() <= found.error_bound < 1e-3
    assert np.abs(found.head.weights - expected.weights).max() < 1e-6
    given = answered(exact(LINEAR, after={"ridge": 3.0}))
    assert (given.chosen_by, given.ridge) == ("given", 3.0)


def test_further_statistics_bring_further_heads() -> None:
    found = answered(exact(LINEAR, KERNEL))
    assert type(found.head).__name__ == "Solution"
    assert isinstance(found.heads["random-features"], KernelHead)
    features, labels = clouds(500, DIM, 4, seed=77, noise=0.7)
    for head in (found.head, *found.heads.values()):
        assert (head.predict(features, normalise=True) == labels).mean() > 0.8
    alone_ = answered(exact(KERNEL))
    assert isinstance(alone_.head, KernelHead)
    assert alone_.heads == {}


@pytest.mark.parametrize("statistics", [[LINEAR], [KERNEL], [CCVR], [LINEAR, KERNEL]])
def test_what_the_study_publishes_follows_from_its_first_statistic(statistics: Any) -> None:
    publish = ["lda", "ncm", "pooled", "posterior"]
    spec = exact(*statistics, after={"publish": publish})
    found = answered(spec, rows=200)  # of so many rows no feature is cleared
    assert {*found.heads, *found.documents} >= set(publish)
    check_declared(spec, encode_files(spec, found))
    assert not any(document.notes.get(REFUSED_NOTE) for document in found.documents.values())
    features, labels = clouds(500, DIM, 4, seed=77, noise=0.7)
    assert (found.heads["lda"].predict(features, normalise=True) == labels).mean() > 0.8
    assert found.documents["pooled"].arrays["counts"].sum() == 2_400
    if found.solution is not None:  # `explain_study` tells members this
        ridge, raised = found.solution.ridge, np.linalg.inv(found.documents["posterior"].arrays["whitening"])
        V = raised @ raised.T - ridge * np.eye(len(raised))
        assert pytest.approx(found.documents["pooled"].arrays["V"], abs=1e-9) == V
    if statistics[0] is not KERNEL:
        plain = FFCStatistics(DIM, 4, constant=statistics[0] is LINEAR, normalise=True)
        plain.update(*everybody(200))
        expected = solve_lda(plain).weights
        assert found.heads["lda"].weights == pytest.approx(expected, abs=1e-5 * np.abs(expected).max())


def test_the_same_sums_give_the_same_files() -> None:
    spec = exact(LINEAR, KERNEL, after={"publish": ["lda", "pooled"]}, withheld=(2,))
    one, other = (encode_files(spec, answered(spec)) for _ in range(2))
    assert (one.head, dict(one.documents), one.material) == (other.head, dict(other.documents), None)
    assert set(one.documents) == {"random-features", "lda", "pooled"}
    assert one.head is not None
    head = calibrated_in(one.head)
    assert (head.withheld, head.head.empty_classes) == ((2,), (2,))
    assert document_in(one.documents["pooled"]).arrays["counts"][2] == 0
    assert calibrated_in(one.documents["random-features"]).withheld == (2,)
    check_head(spec, head)


def test_a_step_whose_material_members_would_refuse_fails() -> None:
    """Otherwise its run would go on, and never come to its next step."""
    spec = noisy("mean+sum", "mean", LINEAR, dim=DIM, classes=NAMES)
    found = answered(spec)
    for given in (found.material["centre"], np.full(DIM, -1e6)):
        files = encode_files(spec, replace(found, material={"centre": given}))
        assert files.material is not None
    for false in (1.1e6, -1.1e6, np.nan):
        with pytest.raises(PeerFault) as caught:
            encode_files(spec, replace(found, material={"centre": np.full(DIM, false)}))
        assert caught.value.cause is Cause.SUM_CHECK_FAILED


@pytest.mark.parametrize("statistics", [[LINEAR], [KERNEL], [CCVR], [LINEAR, KERNEL]])
def test_who_has_the_sums_can_check_that_a_result_follows_from_them(statistics: Any) -> None:
    spec = exact(*statistics)
    total = summed(spec)
    found = compute_answer(spec, read_pooled(spec, total, 12), 12)
    published = encode_files(spec, found)
    facts: Any = {"rows": 720, "ridge": found.ridge}
    check_answer(spec, total, 12, published, **facts)
    assert published.head is not None
    check_head(spec, calibrated_in(published.head))

    def refuses(
        total: Any = total, published: Files = published, said: str = "result-mismatch", **more: Any
    ) -> None:
        with pytest.raises(PeerFault, match=said) as caught:
            check_answer(spec, total, 12, published, **{**facts, **more})
        assert caught.value.cause is Cause.RESULT_MISMATCH

    refuses(rows=719, said=r"\b720 .*\b719\b")
    refuses(total=total[:-1], said="int64")
    spoiled = total.copy()
    spoiled[-1] += 1 << 40
    refuses(total=spoiled)
    assert found.head is not None
    moved = replace(found.head, weights=found.head.weights * (1 + 1e-5))
    refuses(published=replace(published, head=encode_files(spec, replace(found, head=moved, heads={})).head))
    if len(statistics) > 1:
        kind = statistics[1]["kind"]
        first = {kind: encode_files(spec, replace(found, heads={kind: found.head})).documents[kind]}
        refuses(published=replace(published, documents={**published.documents, **first}), said=kind)


@pytest.mark.parametrize("ridge", ["gcv", 1.0])
def test_a_coarse_sum_of_features_that_depend_on_each_other_passes_its_check(ridge: Any) -> None:
    records = {"least": 60, "most": 100_000, "least_per_class": 5, "rows_per_id": 1}
    spec = exact({"kind": "ffc"}, ring_bits=32, records=records, after={"ridge": ridge})
    mixed = np.random.default_rng(0).standard_normal((3, DIM))
    total = np.sum([compute_vector(spec, x[:, :3] @ mixed, y) for x, y in members()], axis=0)
    found = compute_answer(spec, read_pooled(spec, total, 12), 12)
    assert found.solution is not None
    assert found.solution.smallest_eigenvalue < -1e-3  # by rounding
    check_answer(spec, total, 12, encode_files(spec, found), rows=720, ridge=found.ridge)


def chain(
    recipe: str, statistic: Any, *, epsilon: float = 10.0, after: Any = None, steps: int | None = None
) -> list[Any]:
    """Yield (spec, material, total, answer, files) of every step of a noisy study, or of its first steps."""
    found, content = list[Any](), None
    for step, _ in RECIPES[recipe][:steps]:
        spec = noisy(recipe, step, statistic, dim=DIM, classes=NAMES, noise={"epsilon": epsilon}, after=after)
        material = read_material(spec, content)
        total = summed(spec, material, 300)
        result = compute_answer(spec, read_pooled(spec, total, 12), 12, material)
        published = encode_files(spec, result)
        found.append((spec, material, total, result, published))
        content = published.material
    assert (content is None) == (len(found) == len(RECIPES[recipe]))
    return found


@pytest.mark.parametrize(
    ("recipe", "statistic"),
    [
        ("sum", {"kind": "ffc"}),
        ("sum", KERNEL),
        ("mean+sum", LINEAR),
        ("mean+sum", CCVR),
        ("mean+sum+6-gradients", KERNEL),
        ("mean+sum+16-gradients", LINEAR),
    ],
)
def test_a_noisy_chain_ends_in_a_head_that_anyone_with_its_sums_can_check(
    recipe: str, statistic: Any
) -> None:
    steps = chain(recipe, statistic)
    for spec, material, total, result, published in steps:
        facts = {"rows": result.records, "ridge": result.ridge}
        check_answer(spec, total, 12, published, **facts, material=material)
        check_declared(spec, published)
        if result.head is not None:
            check_head(spec, calibrated_in(published.head), material)
    spec, material, _, result, published = steps[-1]
    features, labels = clouds(500, DIM, 4, seed=77, noise=0.7)
    assert (calibrated_in(published.head).predict(features) == labels).mean() > 0.7
    if recipe != "sum":
        assert (result.head.centre == steps[0][3].documents["mean"].arrays["mean"]).all()
        with pytest.raises(PeerFault, match="step's mean"):
            check_head(spec, calibrated_in(published.head), {**material, "centre": material["centre"] / 2})
        _, material, total, mean, published = steps[0]
        assert abs(mean.records - 3600) < 200
        lied = replace(published, material=steps[1][4].material or published.head or b"")
        with pytest.raises(PeerFault):
            check_answer(steps[0][0], total, 12, lied, rows=mean.records, ridge=None)


def test_a_noisy_head_names_what_it_promises() -> None:
    [(_, _, _, _, published)] = chain("sum", LINEAR, epsilon=3.0)
    noise = calibrated_in(published.head).noise
    assert noise is not None
    assert set(noise) == {"mu", "epsilon", "spent_epsilon", "study_epsilon", "delta"}
    assert noise["study_epsilon"] == pytest.approx(3.0, abs=1e-6)
    other = noisy("sum", "sum", LINEAR, dim=DIM, classes=NAMES, noise={"epsilon": 4.0})
    with pytest.raises(PeerFault, match="other noise"):
        check_head(other, calibrated_in(published.head))


def test_a_noisy_sum_publishes_what_it_can() -> None:
    publish = {"publish": ["lda", "ncm", "pooled", "posterior"]}
    [(spec, _, _, result, published)] = chain("sum", LINEAR, after=publish)
    check_declared(spec, published)
    features, labels = clouds(500, DIM, 4, seed=77, noise=0.7)
    assert (result.heads["lda"].predict(features, normalise=True) == labels).mean() > 0.8
    assert (result.heads["ncm"].predict(features, normalise=True) == labels).mean() > 0.6
    assert set(result.documents["posterior"].arrays) == {"whitening", "variances"}
    assert "exact ones" in result.documents["pooled"].notes[REFUSED_NOTE]
    [(_, _, _, result, published)] = chain("sum", {"kind": "ffc"}, after=publish)
    assert result.heads == {}
    assert "ffc with constant" in document_in(published.documents["lda"]).notes[REFUSED_NOTE]
    [(spec, _, _, _, published)] = chain("sum", CCVR, after=publish)
    check_declared(spec, published)


def test_a_file_may_hold_a_second_moment_of_its_study_and_little_more() -> None:
    for blocks in ([LINEAR], [KERNEL], [CCVR], [LINEAR, KERNEL]):
        spec = exact(*blocks)
        width = max(DIM, spec.question.width)
        assert 0 < file_bytes_max(spec) - 8 * width * width < 1 << 17


def test_a_noisy_ridge_can_be_given() -> None:
    free, given = (chain("sum", LINEAR, after={"ridge": ridge})[0][3] for ridge in ("gcv", 1e5))
    assert (free.ridge, given.ridge) == (None, 1e5)
    assert np.abs(given.head.weights).max() < 0.1 * np.abs(free.head.weights).max()


def test_noise_that_drowns_the_records_leaves_a_centre_of_zeros() -> None:
    spec = noisy("mean+sum", "mean", LINEAR, dim=DIM, classes=NAMES)
    found = compute_answer(spec, read_pooled(spec, np.full(DIM + 1, -5), 12), 12)
    assert found.records == 0
    assert not found.material["centre"].any()


def test_material_goes_with_its_step() -> None:
    """What else is refused is in `assurance/vectors/noisy.json`."""
    recipe, own = "mean+sum+16-gradients", {"dim": DIM, "classes": NAMES, "noise": {"epsilon": 10.0}}
    mean, gradient = (noisy(recipe, step, LINEAR, **own) for step in ("mean", "gradient-1"))
    content = chain(recipe, LINEAR, steps=2)[-1][4].material
    assert read_material(gradient, content).keys() == {"centre", "whitening", "weights", "rate"}
    for spec, shown in ((gradient, None), (mean, content)):
        with pytest.raises(PeerFault):
            read_material(spec, shown)


def test_a_head_of_one_s_own_files_is_the_plain_solution() -> None:
    features, labels = everybody()
    batches = [(features[:400], labels[:400]), (features[400:], labels[400:])]
    found = solve_alone(DIM, 4, FFC(), batches, constant=True, normalise=True, publish=("lda",))
    plain = FFCStatistics(DIM, 4, constant=True, normalise=True)
    plain.update(features, labels)
    assert found.answer.head is not None
    assert found.answer.head.weights == pytest.approx(solve_ffc(plain).weights, abs=1e-9)
    assert found.answer.error_bound is None
    assert isinstance(found.answer.heads["lda"], Head)
    kernel = solve_alone(
        DIM, 4, RandomFeaturesFFC(size=16, bandwidth=0.7), batches, normalise=True, ridge=0.5
    )
    assert isinstance(kernel.answer.head, KernelHead)
    assert kernel.answer.ridge == 0.5
    drawn = CCVRHead(samples_per_class=50, power=0.5)
    ccvr = solve_alone(DIM, 4, statistics.CCVR(), batches, normalise=True, ccvr=drawn)
    assert isinstance(ccvr.answer.head, TukeyHead)
    with pytest.raises(ValueError, match="normalise"):
        solve_alone(DIM, 4, FFC(), batches)
