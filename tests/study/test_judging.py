"""What a study's judge shows, counts and says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.study.specs import clouds, content_of, fields_of, spec_of, whole
from veilsum.calibration import (
    CCVRStatistics,
    FFCStatistics,
    Head,
    nearest_class_mean,
    solve_ccvr,
    solve_ffc,
    solve_lda,
)
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.judge import JudgedTables
from veilsum.calibration.judge_tables import (
    JUDGE_LATTICE,
    ShownHeads,
    exact_scores,
    place_scale,
    positive_margins,
    tabulate_records,
)
from veilsum.calibration.random_features import KernelHead
from veilsum.calibration.rows import unit_directions
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.study import Question, RecordRules
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.judging import (
    check_judge_possible,
    encode_shown,
    expect_judgements,
    explain_judgements,
    judge_mechanism,
    judge_vector,
    read_shown,
    show_heads,
    table_shapes,
)
from veilsum.study.result_files import calibrated_in, encode_files, file_bytes_max
from veilsum.study.vectors import compute_vector, random_features

DIM = 16
JUDGE = {"epsilon": 1.0, "delta": 1e-7, "heads": 3, "positive": None, "bins": {"confidence": 5, "score": 8}}
RANDOM = {"kind": "random-features", "size": 32, "bandwidth": 0.8}


def question_of(
    classes: int = 3,
    statistics: tuple[dict[str, Any], ...] = ({"kind": "ffc"},),
    least: int = 2_000,
    most: int = 20_000,
    **judge: Any,
) -> Question:
    """Make a study's question; keywords replace fields of its judge. Its rows are not those that a sum needs."""
    values = whole(
        classes=[f"class-{label}" for label in range(classes)],
        judge={**JUDGE, **judge},
        **fields_of(*statistics),
    )
    values["question"]["records"] |= {"least": 5_000, "least_per_class": 20}
    if statistics[0]["kind"] == "ccvr":
        values["after"]["ccvr"] = {"samples_per_class": 100, "power": 0.5}
    question = content_of(values).question
    rules = RecordRules(least=least, most=most, least_per_class=1, rows_per_id=1)
    return question.model_copy(update={"records": rules})


def heads_of(question: Question) -> list[Head]:
    """Fit a head of each kind that a study's sums give, one class of which has no records."""
    features, labels = clouds(400, question.dim, len(question.classes))
    keep = labels != len(question.classes) - 1
    features, labels = features[keep], labels[keep]
    statistics = FFCStatistics(question.dim, len(question.classes), constant=True, normalise=True)
    statistics.update(features, labels)
    moments = CCVRStatistics(question.dim, len(question.classes))
    moments.update(unit_directions(features), labels)
    heads = [
        solve_ffc(statistics),
        solve_lda(statistics),
        nearest_class_mean(statistics),
        solve_ccvr(moments, np.random.default_rng(0), unit=True),
    ]
    if (phi := random_features(question)) is not None:
        mapped = FFCStatistics(phi.size, len(question.classes))
        mapped.update(phi(features, normalise=True), labels)
        heads.append(phi.head(solve_ffc(mapped)))
    centre = np.full(question.dim, 0.01)
    return [*heads, Head(heads[0].weights, heads[0].bias, heads[0].empty_classes, centre=centre)]


def shown_of(question: Question, *heads: Head) -> ShownHeads:
    features, labels = clouds(300, question.dim, len(question.classes))
    chosen, shapes = heads or (heads_of(question)[0],), table_shapes(question)
    scale = place_scale(shapes.positive, shapes.score_bins, exact_scores(chosen[0], features), labels)
    return ShownHeads(chosen, scale.temperature, scale.edges)


def test_no_more_heads_are_shown_than_the_study_allows() -> None:
    question = question_of()
    with pytest.raises(Misuse):
        encode_shown(question, shown_of(question, *heads_of(question)[:4]))


def test_a_material_holds_every_kind_of_head() -> None:
    question = question_of(statistics=({"kind": "ffc"}, RANDOM), positive="class-1")
    features, _ = clouds(50, DIM, 3, seed=3)
    for head in heads_of(question):
        content = encode_shown(question, shown_of(question, head))
        read = read_shown(question, content)
        assert encode_shown(question, read) == content
        assert type(read.heads[0]) is (type(head) if isinstance(head, KernelHead | TukeyHead) else Head)
        expected = head.scores(features, normalise=True)
        expected[:, list(head.empty_classes)] = -np.inf
        scores = exact_scores(read.heads[0], features)
        np.testing.assert_allclose(scores, expected, atol=1e-5 * np.abs(head.weights).max())


@pytest.mark.parametrize("statistics", [({"kind": "ffc"},), (RANDOM,), ({"kind": "ccvr"},)])
def test_a_records_cells_follow_from_its_row_alone(statistics: tuple[dict[str, Any], ...]) -> None:
    question = question_of(statistics=statistics, positive="class-1")
    kinds = {"ffc": Head, "random-features": KernelHead, "ccvr": TukeyHead}
    [head, *_] = [each for each in heads_of(question) if isinstance(each, kinds[statistics[0]["kind"]])]
    shown, shapes = shown_of(question, head, heads_of(question)[1]), table_shapes(question)
    features, labels = clouds(257, DIM, 3, seed=5)
    whole_sum = tabulate_records(shapes, shown, features, labels)
    alone = [tabulate_records(shapes, shown, features[[row]], labels[[row]]) for row in range(len(labels))]
    assert (np.sum(alone, axis=0) == whole_sum).all()
    lengths = np.linalg.norm(np.array(alone) / JUDGE_LATTICE.unit(1), axis=1)
    assert lengths.max() <= shapes.release.row_sensitivity
    assert shapes.release.row_sensitivity == pytest.approx(math.sqrt(4.25))


def test_records_of_classes_that_the_head_lacks_are_wrong_in_a_row_of_their_own() -> None:
    question = question_of()
    shown, shapes = shown_of(question), table_shapes(question)
    features, _ = clouds(40, DIM, 3)
    flat = tabulate_records(shapes, shown, features, np.full(40, 2))
    tables = shapes.release.layout.unflatten(flat // JUDGE_LATTICE.unit(1))
    assert tables["class"].tolist() == [[0, 0], [0, 0], [0, 0], [40, 0]]
    assert tables["joint"][0] == 40
    assert tables["confidence"][:, :2].sum(axis=0).tolist() == [40, 0]


def test_the_number_of_elements_follows_from_the_question_alone() -> None:
    question = question_of()
    one, three = (shown_of(question, *heads_of(question)[:number]) for number in (1, 3))
    features, labels = clouds(50, DIM, 3)
    lengths = {
        len(tabulate_records(table_shapes(question), shown, features, labels)) for shown in (one, three)
    }
    assert lengths == {8 + 2 * 4 + 3 * 5}
    assert table_shapes(question_of(2)).elements == 8 + 2 * 3 + 3 * 5 + 2 * 8


def test_a_run_of_members_says_how_good_the_head_is() -> None:
    question = question_of(2)
    features, labels = clouds(12_000, DIM, 2, noise=3.0)
    shown = shown_of(question, _fit(question))
    mechanism = judge_mechanism(question, 12, 9)
    total = sum(
        judge_vector(
            question,
            shown,
            features[member::12],
            labels[member::12],
            mechanism,
            np.random.default_rng(member).bytes,
        )
        for member in range(12)
    )
    shapes = table_shapes(question)
    counts = shapes.release.layout.unflatten(JUDGE_LATTICE.decode(np.asarray(total), 1))
    tables = JudgedTables(shapes, counts, 12 * mechanism.largest / JUDGE_LATTICE.unit(2))
    verdict = tables.judge(
        1, empty_classes=shown.heads[0].empty_classes, temperature=shown.temperature, edges=shown.edges
    )
    accuracy = float((exact_scores(shown.heads[0], features).argmax(axis=1) == labels).mean())
    assert verdict.accuracy.is_stated
    assert verdict.accuracy.low < accuracy < verdict.accuracy.high
    assert verdict.records == pytest.approx(12_000, rel=0.02)
    assert verdict.score is not None
    assert verdict.score.auroc.is_stated


def _fit(question: Question) -> Head:
    features, labels = clouds(400, question.dim, 2, seed=8)
    statistics = FFCStatistics(question.dim, 2, constant=True, normalise=True)
    statistics.update(features, labels)
    return solve_ffc(statistics)


def test_clipping_bounds_what_a_member_adds() -> None:
    question = question_of(most=60)
    features, labels = clouds(500, DIM, 3)
    mechanism = judge_mechanism(question, 12, 9)
    plain = judge_vector(
        question, shown_of(question), features, labels, mechanism, np.random.default_rng(0).bytes
    )
    assert np.abs(plain).max() < 60 * 256 + 13 * math.sqrt(mechanism.largest)


def test_a_study_is_told_what_its_judge_can_say() -> None:
    question = question_of()
    fewest, all_members = expect_judgements(question)
    assert (fewest.members, all_members.members) == (11, 12)
    assert fewest.records == 11 * 2_000 // 18
    stated = {each.name: each.half_width for each in all_members.figures}
    assert stated["accuracy"] is not None
    assert 0.01 < stated["accuracy"] < 0.03
    more = expect_judgements(question, 20_000)[1]
    assert all((each.half_width or 1) < 0.03 for each in more.figures)
    assert len(list(explain_judgements(question, (fewest, all_members)))) == 3
    assert list(explain_judgements(question_of().model_copy(update={"judge": None}), ())) == []


def test_a_judge_that_could_never_say_anything_is_refused() -> None:
    check_judge_possible(question_of(most=2_000))
    with pytest.raises(PeerFault) as caught:
        check_judge_possible(question_of(least=5, most=60, epsilon=0.2))
    assert (caught.value.cause, list(caught.value.parties)) == (Cause.STUDY_REFUSED, ["admin"])


@pytest.mark.parametrize(
    ("statistic", "step"),
    [({"kind": "ffc", "constant": True}, "sum"), (RANDOM, "sum"), ({"kind": "ccvr"}, "sum")],
)
def test_a_head_is_published_with_a_scale_that_the_judge_can_use(
    statistic: dict[str, Any], step: str
) -> None:
    least = {"least": 5_000, "most": 20_000, "least_per_class": 20, "rows_per_id": 1}
    spec = spec_of(
        step,
        **fields_of(statistic),
        classes=["class-0", "class-1", "class-2"],
        judge={**JUDGE, "positive": "class-1"},
        records=least,
    )
    features, labels = clouds(5_000, DIM, 3, noise=2.0)
    total = compute_vector(spec, features, labels)
    answer = compute_answer(spec, read_pooled(spec, total, 1), 1)
    head_file = encode_files(spec, answer).head
    assert head_file is not None
    shown = show_heads(spec.question, [calibrated_in(head_file)] * 3)
    judgement = replace(spec, period="judge-1", step="judge")
    assert 0 < len(encode_shown(spec.question, shown)) <= file_bytes_max(judgement) < 1 << 17
    scores = exact_scores(shown.heads[0], features)
    shares = np.bincount(np.searchsorted(shown.edges, positive_margins(scores, 1)), minlength=8) / len(labels)
    assert shares.max() < 0.4  # the bins are used
    best = place_scale(1, 8, scores, labels).temperature
    assert best / 2 < shown.temperature < best * 2


def test_a_head_without_a_scale_is_judged_on_a_guess() -> None:
    question = question_of(positive="class-1")
    shown = show_heads(question, [Calibrated(heads_of(question)[0]), Calibrated(heads_of(question)[1])])
    assert len(shown.edges) == 7
    assert encode_shown(question, shown)
