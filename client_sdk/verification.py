"""Verification of a result from its stored bytes, by a member and by a reader of the sums."""

from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.numpy import load

from client_sdk.published_head import PublishedHead
from veilsum.calibration.head import Head
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import check_counts, check_withheld
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.messages import NO_CONTEXT
from veilsum.protocol.record import mismatch_fault, verify_record
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import JUDGE_STEP, MEAN_STEP, ROWS_LEVELS
from veilsum.study.answers import Pooled, compute_answer, read_pooled
from veilsum.study.judgement import check_tables, read_tables
from veilsum.study.result_files import (
    Files,
    calibrated_in,
    check_answer,
    check_head,
    digest_of,
    is_promised,
    material_file,
)
from veilsum.study.vectors import Material
from veilsum.study.views import counts_before, record_history

if TYPE_CHECKING:
    from client_sdk.result import Result


def verify_result(result: "Result") -> None:
    """Check a result whose evidence holds (`Evidence.verify`), in this order.

    1. the certificate is not VOID, and the step is not a count (result-mismatch);
    2. the coordinator's signature on the record (bad-signature);
    3. each field of the record, and its survivors, against the evidence (result-mismatch);
    4. dropped members are those that the record's disputes dropped, and none of them survives (result-mismatch);
    5. each evicted member is a survivor and proved false (result-mismatch, eviction-invalid);
    6. the withheld classes follow from the record's counts, which allow a sum, and the counts before it are the history's
       (result-mismatch);
    7. the record's noise follows from study and manifest, and an exact sum has no more rows than the study admits (result-mismatch);
    8. the digests of the documents, the material and the head's file, then that the head is the study's and scores no class without
       rows (result-mismatch);
    9. the record names a transcript. If it was fetched, it is that one, it replays, and the coordinator broke no rule in it
       (`client_sdk.evidence.replay_with_evidence`).

    Only readers of the sums can check that the weights solve them (`verify_sums`). For others the signature shows that the coordinator
    says so, and for which members.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    evidence, record, spec = result.evidence, result.record, result.spec
    if result.certificate.is_void:
        raise mismatch_fault("the certificate says that the attempt ended without a sum")
    if spec.is_disclosed:
        raise mismatch_fault("a count has no result")
    verify_record(record, evidence.roster.coordinator)
    _check_fields(result)
    _check_dropped(result)
    _check_evicted(result)
    _check_withheld(result)
    if not is_promised(spec, None if record.noise is None else record.noise.model_dump()):
        raise mismatch_fault("the record's noise does not follow from study and manifest")
    if not spec.adds_noise and record.rows > spec.question.records_max:
        raise mismatch_fault(f"{record.rows} rows are more than the study allows")
    _check_files(result)
    _ = result.verdict


def _check_fields(result: "Result") -> None:
    record, expected = result.record, record_history(result.evidence.attempt, result.certificate)
    survivors = expected.pop("survivors")
    for name, value in expected.items():
        seen = getattr(record, name)
        if seen != value:
            raise mismatch_fault(f"{name} is {seen} in the record, {value} follows from the certificate")
    if record.survivors != survivors:
        raise mismatch_fault("the record's survivors differ from the certificate's")


def _check_dropped(result: "Result") -> None:
    attempt, dropped = result.evidence.attempt, set(result.record.dropped)
    disputes = [Dispute(Cause(view.cause), *view.parties) for view in result.record.disputes]
    if (
        any(dispute.one == dispute.other for dispute in disputes)
        or dropped != vertex_cover(attempt.context, disputes, attempt.quorum.colluders)
        or not {party for dispute in disputes for party in dispute.parties} <= set(attempt.members)
        or dropped & set(result.survivors)
    ):
        raise mismatch_fault("the members that were dropped do not follow from the record's disputes")


def _check_evicted(result: "Result") -> None:
    attempt, evicted = result.evidence.attempt, result.record.evicted
    proofs = result.evictions.proofs if result.evictions is not None else ()
    if tuple(proof.member for proof in proofs) != evicted or len(evicted) > attempt.quorum.colluders:
        raise mismatch_fault(
            f"the record evicts {', '.join(evicted) or 'no member'}; the proofs do not match"
        )
    for proof in proofs:
        check_proof(attempt, result.certificate, proof)


def _check_withheld(result: "Result") -> None:
    terms, question, record = result.evidence.opening.terms, result.spec.question, result.record
    wanted = (
        len(question.classes) if terms.count != NO_CONTEXT else 0,
        len(ROWS_LEVELS) if terms.withheld else 0,
    )
    if (len(record.holders), len(record.reached)) != wanted:
        raise mismatch_fault("the record must give the sums of each count that the terms name, and no others")
    if record.holders:
        try:
            check_withheld(question, record.holders, terms.withheld, repeats=result.evidence.attempt.repeats)
        except PeerFault as fault:
            raise mismatch_fault("the classes withheld do not follow from the counts") from fault
    if record.counts != counts_before(result.evidence.attempt):
        raise mismatch_fault("the record's counts of this question differ from the opening's history")
    if record.holders:
        try:
            check_counts(question, record.holders, record.reached or None)
        except PeerFault as fault:
            raise mismatch_fault(f"the counts allow no sum: {fault.detail}") from fault


def _check_files(result: "Result") -> None:
    documents = {view.name: view.sha256 for view in result.record.documents}
    if {name: digest_of(content) for name, content in result.document_files.items()} != documents:
        raise mismatch_fault("the documents do not match the record")
    material = result.evidence.opening.terms.material
    if (digest_of(result.material_file) or NO_CONTEXT.hex()) != material.hex():
        raise mismatch_fault("the material does not match the terms")
    check_published(result, result.spec, result.material)
    if result.spec.judges:
        read_tables(result.spec.question, result.document_files)


def check_published(published: PublishedHead, spec: RoundSpec, material: Material | None = None) -> None:
    """Refuse a head that the record does not name, that is not the study's, or that scores classes without rows (result-mismatch)."""
    if digest_of(published.head_file) != published.record.head:
        raise mismatch_fault("the head's file does not match the record")
    if published.head_file is None:
        if spec.step not in {MEAN_STEP, JUDGE_STEP}:
            raise mismatch_fault("the record names no head, but the step has one")
        return
    if spec.judges:
        raise mismatch_fault("a judgement has no head of its own")
    calibrated = calibrated_in(published.head_file)
    check_head(spec, calibrated, material)
    unanswered, classes = list(published.unanswered), len(spec.question.classes)
    if not {*unanswered} < {*range(classes)}:
        raise mismatch_fault(
            f"the record names classes {unanswered} that the head cannot predict, of {classes}"
        )
    head = calibrated.head
    # A class's Gaussian that is missing costs a logistic head its column's use, not its numbers.
    linear = type(head) is Head and not spec.noisy
    if linear and any(each is not None and each[..., unanswered].any() for each in (head.weights, head.bias)):
        raise mismatch_fault(f"the head scores classes {unanswered}, but the sum holds no rows of them")


def verify_sums(result: "Result", sums_file: bytes) -> Pooled:
    """Check the sums behind a result as a reader, in this order (each fails with result-mismatch).

    1. the file is the one that the signed record names: one int64 vector of the step's length;
    2. it fulfils every identity that a sum of honest members fulfils;
    3. its number of rows is the record's, and the heads follow from it (`check_answer`).

    Args:
        result: verified by `Result.verify`.
        sums_file: a safetensors file with one tensor, `sum`.

    Returns:
        What the sum holds, by the kind of the statistic.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    if digest_of(sums_file) != result.record.sums:
        raise mismatch_fault("the sums do not match the record")
    try:
        total = load(sums_file)["sum"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise mismatch_fault(f"the sums are not a safetensors file of a tensor `sum`: {error}") from error
    spec, members = result.spec, len(result.summed)
    if spec.judges:
        check_tables(spec.question, total, result.document_files)
        return {}
    following = None
    if spec.noisy and total.shape == (spec.elements,) and not spec.ends_run:
        # The next step's opening binds its material, and its members check it there; here it is what follows from the sums.
        following = material_file(
            compute_answer(spec, read_pooled(spec, total, members), members, result.material).material
        )
    return check_answer(
        spec,
        total,
        members,
        Files(result.head_file, result.document_files, following),
        rows=result.record.rows,
        ridge=result.record.solution.ridge,
        material=result.material,
    )
