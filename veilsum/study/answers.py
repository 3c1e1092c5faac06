"""Derive pooled statistics, heads, documents and the next step's material from the sums of a study."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from veilsum.calibration import (
    CalibrationError,
    CCVRStatistics,
    FFCStatistics,
    Head,
    RandomFeatures,
    Solution,
    nearest_class_mean,
    ridge_posterior,
    solve_ccvr,
    solve_ffc,
    solve_lda,
)
from veilsum.calibration.answer import REFUSED_NOTE, Answer, Document
from veilsum.calibration.checks import check_sums
from veilsum.calibration.errors import SumCheckFailed
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.privacy.noisy_sums import (
    Descent,
    NoisyGaussians,
    NoisyGradient,
    NoisyMean,
    NoisySums,
)
from veilsum.calibration.random_features import choose_random_features
from veilsum.calibration.ridge import Rounding
from veilsum.calibration.rows import (
    CONSTANT_ENTRY,
    Array,
    Floats,
    Integers,
    as_array,
    as_features,
    check_rows,
    row_blocks,
    unit_directions,
)
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.statistics import CCVR, FFC, RandomFeaturesFFC, Statistic
from veilsum.protocol.study import MEAN_STEP, SUM_STEP, After, CCVRHead
from veilsum.study.promise import mechanism_of
from veilsum.study.scales import add_scales, draw_rows
from veilsum.study.vectors import Material, Statistics, list_accumulators, make_accumulator, random_features

Exact: TypeAlias = Mapping[str, Statistics]
Noisy: TypeAlias = NoisyMean | NoisySums | NoisyGaussians | NoisyGradient
Pooled: TypeAlias = Mapping[str, Statistics] | Mapping[str, Noisy]
"""The contents of a sum, by kind of statistic; of a noisy sum also by "mean" and "gradient"."""

PROMISED_RING_BITS = 48
"""From this ring width on, λ is kept large enough for the weights to be within 1e-6 of unrounded ones."""
_NO_POOLED_SUMS = CalibrationError(
    "a noisy sum publishes no pooled sums: a member's own are mixed with exact ones"
)
_NO_PUBLISHED_COUNTS = CalibrationError("a noisy sum of CCVR publishes nothing beside its head")
_MEAN_DOCUMENT, _SPECTRUM_DOCUMENT = "mean", "spectrum"
_VIRTUAL_FEATURES_TAG = b"veilsum calibration virtual features 1 "


def read_pooled(spec: RoundSpec, total: Integers, members: int) -> Pooled:
    """Read pooled statistics from a sum; an exact sum must satisfy the identities of honest sums.

    `total`, (spec.elements,), is the centred sum of `members` vectors of a step other than the count. Sums of several periods of one
    question can be added: pass their sum, and the number of vectors in all of them.

    Raises:
        PeerFault: sum-check-failed. Anyone may read it, so it names the identity and no number.
    """
    if spec.noisy:
        return _read_noisy(spec, total, members)
    try:
        return _read_exact(spec, total, members)
    except SumCheckFailed as error:
        raise PeerFault(Cause.SUM_CHECK_FAILED, f"identity broken: {error.identity}") from error


def compute_answer(
    spec: RoundSpec,
    found: Pooled,
    members: int,
    material: Material | None = None,
    *,
    ridge: float | None = None,
) -> Answer:
    """Compute the heads, documents and the next step's material.

    `found` is the result of `read_pooled`; a large V may be modified in place. `members` is the number of vectors in the sum. `material` is
    this step's material, from `read_material`. `ridge` fixes λ of the first head of an exact sum instead of choosing it again.

    Raises:
        PeerFault: sum-check-failed if no head follows from the sum.
    """
    # Before heads are solved, which may overwrite V.
    drawn = draw_rows(spec.question, found) if spec.ends_run else None
    try:
        answer = _solve_answer(spec, found, members, material or {}, ridge)
    except (CalibrationError, np.linalg.LinAlgError) as error:
        raise PeerFault(Cause.SUM_CHECK_FAILED, f"no head follows: {type(error).__name__}") from error
    return add_scales(spec.question, drawn, answer) if spec.ends_run else answer


def document_names(spec: RoundSpec) -> frozenset[str]:
    """Return the names of what a step other than the judge's publishes beside its head: heads and documents."""
    publish = frozenset(spec.content.after.publish)
    if not spec.noisy:
        return publish.union(each.kind for each in spec.question.statistics[1:])
    if spec.step == MEAN_STEP:
        return frozenset({_MEAN_DOCUMENT})
    if spec.step != SUM_STEP:
        return frozenset()
    return publish if spec.question.has_statistic("ccvr") else publish | {_SPECTRUM_DOCUMENT}


def _solve_answer(
    spec: RoundSpec, found: Pooled, members: int, material: Material, ridge: float | None
) -> Answer:
    question, after = spec.question, spec.content.after
    if spec.noisy:
        (each,) = found.values()
        return _noisy_answer(spec, each, material)  # type: ignore[arg-type]  # `read_pooled` of a noisy step
    rounding = Rounding(question.scale, members, question.ring_bits >= PROMISED_RING_BITS)
    exact: Exact = found  # type: ignore[assignment]  # as above
    phi, seed = random_features(question), question.digest
    return solve_exact(exact, question.statistics, after, phi, seed, rounding, ridge)


def solve_exact(
    statistics: Exact,
    blocks: Sequence[Statistic],
    after: After,
    phi: RandomFeatures | None,
    seed: bytes,
    rounding: Rounding | None = None,
    ridge: float | None = None,
) -> Answer:
    """Solve exact sums for the first statistic's head, the others' heads by kind, and the published documents.

    `seed`, the question's digest, determines all draws. Without `rounding`, the sums are float64. Without `ridge`, λ of the first head is
    chosen as the study says.
    """
    chosen = after if ridge is None else after.model_copy(update={"ridge": ridge})
    answers: dict[str, Answer] = {}
    for block in blocks:
        how = after if answers else chosen
        answers[block.kind] = _exact_answer(block, statistics[block.kind], how, phi, seed, rounding)
    first, *others = answers
    heads = {kind: head for kind in others if (head := answers[kind].head) is not None}
    published, documents = _publish_exact(statistics, answers, after, phi, rounding)
    return replace(answers[first], heads={**heads, **published}, documents=documents)


def _read_exact(spec: RoundSpec, total: Integers, members: int) -> Exact:
    question = spec.question
    lattice, found = SumsLattice(question.scale), dict[str, Statistics]()
    for kind, place, statistics, _ in list_accumulators(question):
        part = total[place]
        if isinstance(statistics, CCVRStatistics):
            statistics.add_sums(lattice, part)
            statistics.check(lattice, members)
            found[kind] = statistics
            continue
        check_sums(statistics.layout, lattice, part, members=members, constant=statistics.constant)
        found[kind] = statistics.from_sums(lattice, part.copy(), members=members)
    return found


def _exact_answer(
    block: Statistic,
    statistics: Statistics,
    after: After,
    phi: RandomFeatures | None,
    seed: bytes,
    rounding: Rounding | None,
) -> Answer:
    if isinstance(statistics, CCVRStatistics):
        return Answer(
            statistics.records, _retrain_ccvr(statistics, after, seed), chosen_by="virtual features"
        )
    if not isinstance(block, FFC):
        assert phi is not None
        return _kernel_answer(statistics, phi, after, rounding)
    solution = solve_ffc(statistics, _choose_ridges(after, rounding, statistics), in_place=True)
    return Answer.of_ridge(solution, solution, None if rounding is None else rounding.error_bound(solution))


def _kernel_answer(
    statistics: FFCStatistics, phi: RandomFeatures, after: After, rounding: Rounding | None
) -> Answer:
    def ridges(part: FFCStatistics) -> Sequence[float] | None:
        # Sums of fewer features are scaled to rows of length 1, which scales their rounding as well.
        return _choose_ridges(after, rounding, part, scale=phi.size / part.dim)

    chosen, solution = choose_random_features(statistics, phi, ridge=ridges)
    bound = None if rounding is None else rounding.error_bound(solution, scale=phi.size / chosen.size)
    return Answer.of_ridge(solution, chosen.head(solution), bound)


def _retrain_ccvr(
    statistics: CCVRStatistics | NoisyGaussians, after: After, seed: bytes, centre: Floats | None = None
) -> Head:
    """Retrain CCVR's head, without Tukey's power if the features are centred: it would cut their negative values."""
    assert after.ccvr is not None
    draws = int.from_bytes(hashlib.sha256(_VIRTUAL_FEATURES_TAG + seed).digest(), "little")
    return solve_ccvr(
        statistics,
        np.random.default_rng(draws),
        per_class=after.ccvr.samples_per_class,
        power=after.ccvr.power if centre is None else None,
        unit=True,
        centre=centre,
    )


def _choose_ridges(
    after: After, rounding: Rounding | None, statistics: FFCStatistics, *, scale: float = 1.0
) -> Sequence[float] | None:
    if after.ridge != "gcv":
        return (after.ridge,)
    return None if rounding is None else rounding.ridges_for(statistics, scale=scale)


def _publish_exact(
    statistics: Exact,
    answers: Mapping[str, Answer],
    after: After,
    phi: RandomFeatures | None,
    rounding: Rounding | None,
) -> tuple[dict[str, Head], dict[str, Document]]:
    """Compute further heads and documents from the first statistic."""
    heads, documents = dict[str, Head](), dict[str, Document]()
    if not after.publish:
        return heads, documents
    kind, first = next(iter(statistics.items()))
    sums = first.pooled if isinstance(first, CCVRStatistics) else first
    mapped = phi.head if phi is not None and kind == "random-features" else _same_head
    for name in after.publish:
        try:
            match name:
                case "lda":
                    heads[name] = mapped(_plain_head(solve_lda(sums)))
                case "ncm":
                    heads[name] = mapped(_plain_head(nearest_class_mean(sums)))
                case "pooled":
                    documents[name] = _pooled_document(sums)
                case "posterior":
                    solution = answers[kind].solution if kind == "ffc" else None
                    if solution is None:
                        solution = solve_ffc(sums, _choose_ridges(after, rounding, sums))
                    documents[name] = _posterior_document(sums, solution)
        except CalibrationError as error:
            documents[name] = refusal_document(error)
    return heads, documents


def _pooled_document(sums: FFCStatistics) -> Document:
    arrays = {"V": np.array(sums.V), "U": np.ascontiguousarray(sums.U), "counts": np.array(sums.counts)}
    return Document(arrays, {"constant": sums.constant})


def _posterior_document(sums: FFCStatistics, solution: Solution) -> Document:
    found = ridge_posterior(sums, solution)
    constant = {} if found.constant is None else {"constant": found.constant}
    return Document({"whitening": found.whitening, "variances": found.variances}, constant)


def refusal_document(error: Exception) -> Document:
    """Make a document that states why it can't be computed. The head is published anyway."""
    return Document({}, {REFUSED_NOTE: f"{type(error).__name__}: {error}"})


def _read_noisy(spec: RoundSpec, total: Integers, members: int) -> Mapping[str, Noisy]:
    mechanism, after = mechanism_of(spec), spec.content.after
    lattice, blocks = mechanism.lattice, mechanism.release.layout.unflatten(total)
    (statistic,) = spec.question.statistics
    deviation = partial(mechanism.deviation, survivors=members)
    if spec.step == MEAN_STEP:
        return {"mean": NoisyMean(lattice.decode(blocks["z"], 1), lattice.mean_constant / lattice.unit(1))}
    if spec.step != SUM_STEP:
        return {"gradient": NoisyGradient(lattice.decode(blocks["G"], 2), deviation("G"))}
    if isinstance(statistic, CCVR):
        moments = [lattice.decode(blocks[f"M.{label}"], 2) for label in range(len(blocks) - 2)]
        counts, sums = lattice.decode(blocks["N"], 2), lattice.decode(blocks["S"], 1)
        return {"ccvr": NoisyGaussians(counts, sums, np.array(moments), deviation("N"), deviation("M.0"))}
    V, U = lattice.decode(blocks["V"], 2), lattice.decode(blocks["U"], 1)
    ridge = None if after.ridge == "gcv" else after.ridge
    return {statistic.kind: NoisySums(V, U, deviation("V"), deviation("U"), spec.question.constant, ridge)}


def _noisy_answer(spec: RoundSpec, found: Noisy, material: Material) -> Answer:
    if isinstance(found, NoisyMean):
        centre = np.ascontiguousarray(found.mean)
        documents = {_MEAN_DOCUMENT: Document({"mean": centre})}
        return Answer(found.records, None, documents=documents, material={"centre": centre})
    if isinstance(found, NoisyGaussians):
        head = _retrain_ccvr(found, spec.content.after, spec.question.digest, material.get("centre"))
        refused: dict[str, Document] = {
            name: refusal_document(_NO_PUBLISHED_COUNTS) for name in spec.content.after.publish
        }
        return Answer(found.records, head, chosen_by="virtual features", documents=refused)
    if isinstance(found, NoisySums):
        return _shrunk_answer(spec, found, material)
    steps = spec.question.gradients
    before = Descent(material["whitening"], material["weights"], float(material["rate"][0]))
    descent = before.take_step(found, steps.index(spec.step) + 1, len(steps))
    head = _as_rows_are(spec, descent.make_head(constant=spec.question.constant), material)
    return Answer(0, head, chosen_by="gradient", material=_next_material(spec, descent, material))


def _shrunk_answer(spec: RoundSpec, found: NoisySums, material: Material) -> Answer:
    solution = found.solution
    spectrum = Document(
        {"eigenvalues": solution.spectrum.observed, "shrunk": solution.eigenvalues},
        {"edge": solution.spectrum.edge, "above": solution.spectrum.above},
    )
    heads, documents = _noisy_published(found, spec.content.after, material.get("centre"))
    return Answer(
        found.records,
        _as_rows_are(spec, solution, material),
        chosen_by="shrinkage",
        ridge=found.ridge,
        heads=heads,
        documents={_SPECTRUM_DOCUMENT: spectrum, **documents},
        material=_next_material(spec, Descent.from_sums(found), material) if spec.question.gradients else {},
    )


def _noisy_published(
    found: NoisySums, after: After, centre: Floats | None
) -> tuple[dict[str, Head], dict[str, Document]]:
    heads, documents = dict[str, Head](), dict[str, Document]()
    for name in after.publish:
        try:
            match name:
                case "lda":
                    heads[name] = replace(found.solve_lda(), centre=centre)
                case "ncm":
                    heads[name] = replace(found.nearest_mean(), centre=centre)
                case "posterior":
                    whitening, variances = found.posterior
                    constant = {"constant": CONSTANT_ENTRY} if found.constant else {}
                    documents[name] = Document({"whitening": whitening, "variances": variances}, constant)
                case "pooled":
                    documents[name] = refusal_document(_NO_POOLED_SUMS)
        except CalibrationError as error:
            documents[name] = refusal_document(error)
    return heads, documents


def _as_rows_are(spec: RoundSpec, head: Head, material: Material) -> Head:
    """Convert a head to raw features, with the study's centre and random features."""
    whole = Head(head.weights, head.bias, (), centre=material.get("centre"))
    phi = random_features(spec.question)
    return whole if phi is None else phi.head(whole)


def _next_material(spec: RoundSpec, descent: Descent, material: Material) -> dict[str, Floats]:
    """Return the material of the next step; empty after the last step."""
    if spec.step == spec.question.steps[-1]:
        return {}
    arrays = {"whitening": descent.whitening, "weights": descent.weights, "rate": np.array([descent.rate])}
    return {"centre": material["centre"], **arrays}


def _plain_head(head: Head) -> Head:
    return Head(head.weights, head.bias, head.empty_classes)


def _same_head(head: Head) -> Head:
    return head


_DRAWS_SEED = b"veilsum calibration alone".ljust(32, b"\0")


@dataclass(frozen=True, eq=False)
class Alone:
    """The sums of one process, and the heads and documents from them."""

    statistics: Statistics
    answer: Answer


def solve_alone(
    dim: int,
    classes: int,
    statistic: Statistic,
    batches: Iterable[tuple[Array, Array]],
    *,
    constant: bool = False,
    normalise: bool = False,
    ridge: float | Literal["gcv"] = "gcv",
    publish: tuple[Literal["lda", "ncm", "pooled", "posterior"], ...] = (),
    ccvr: CCVRHead | None = None,
) -> Alone:
    """Sum records in one process and solve for heads, as a study of this statistic would.

    `batches` are (n, dim) features with (n,) labels. With `constant`, FFC fits a constant. With `normalise`, features may have any length.
    """
    statistics, mapped = make_accumulator(statistic, dim, classes, _DRAWS_SEED, constant=constant)
    for features, labels in batches:
        matrix = as_features(features, dim)
        check_rows(matrix, normalise=normalise)
        places = as_array(labels)
        for block in row_blocks(*matrix.shape):
            statistics.update(mapped(unit_directions(matrix[block])), places[block])
    phi = None
    if isinstance(statistic, RandomFeaturesFFC):
        phi = RandomFeatures(dim, statistic.size, statistic.bandwidth, _DRAWS_SEED)
    after = After(ridge=ridge, publish=publish, readers="members", ccvr=ccvr)
    return Alone(statistics, solve_exact({statistic.kind: statistics}, (statistic,), after, phi, _DRAWS_SEED))
