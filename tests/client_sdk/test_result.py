"""Verification of a result from its stored bytes alone."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.evidence import Evidence
from client_sdk.identity import Identity
from client_sdk.member import judge_result
from client_sdk.records import Records
from client_sdk.result import Result
from tests.support.consortium import CLASSES, Consortium
from tests.support.forging import again, tensor
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.calibration import CalibrationError, FFCStatistics, solve_ffc
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Evictions, Proof, Survivor, UploadHeader
from veilsum.protocol.record import DisputeView, DocumentView, sign_record
from veilsum.protocol.transcript import Transcript
from veilsum.study.answers import refusal_document
from veilsum.study.result_files import document_file


def test_a_result_survives_the_disk(done: tuple[Consortium, Result], tmp_path: Path) -> None:
    consortium, result = done
    result.save(tmp_path / "out")
    loaded = Result.load(str(tmp_path / "out"))
    loaded.verify(consortium.admin.public)
    loaded.verify()
    assert loaded.record == result.record
    assert loaded.head_file == result.head_file
    assert np.array_equal(loaded.weights, result.weights)
    assert (loaded.counted, loaded.survivors) == (True, consortium.ids)
    assert loaded.certificate == result.certificate
    evictions = Evictions(bytes(32), (Proof(header_of(result.evidence), b"", (), 0, ()),))
    evicting = replace(signed(consortium, result, evicted=("member-1",)), evictions=evictions)
    evicting.save(tmp_path / "out")
    assert Result.load(tmp_path / "out").evictions == evictions


@pytest.mark.parametrize("name", ["evidence.bin", "record.json", "transcript.json", "weights.safetensors"])
def test_every_flipped_byte_is_found(done: tuple[Consortium, Result], tmp_path: Path, name: str) -> None:
    consortium, result = done
    result.save(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            changed = Result.load(tmp_path)
            said = (changed.record, changed.evidence, read(changed.transcript_file))
            if said == (result.record, result.evidence, read(result.transcript_file)) and name != (
                "weights.safetensors"
            ):
                continue  # white space
            changed.verify(consortium.admin.public)
        except (PeerFault, StateError):
            continue
        pytest.fail(f"{name}: byte {place}")


def test_a_file_that_can_t_be_read_is_not_taken_for_damage(
    done: tuple[Consortium, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To fetch the result again, as after damage, would give another file that its reader may not read."""
    done[1].save(tmp_path)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PermissionError, match=r"evidence\.bin"):
        Result.load(tmp_path)


def test_another_admin_is_refused(done: tuple[Consortium, Result]) -> None:
    with refused("wrong-federation"):
        done[1].verify(b"x" * 32)


@pytest.mark.parametrize("signature", ["", "ab" * 64])
def test_a_record_that_the_coordinator_did_not_sign_is_refused(
    done: tuple[Consortium, Result], signature: str
) -> None:
    record = done[1].record.model_copy(update={"signature": signature})
    with refused("bad-signature", "coordinator"):
        replace(done[1], record=record).verify()


def signed(consortium: Consortium, result: Result, **changes: Any) -> Result:
    """Make a result of a coordinator that signs something else, without the transcript that would expose it."""
    record = sign_record(result.record.model_copy(update=changes), consortium.coordinator_key)
    return replace(result, record=record, transcript_file=None)


def test_disputes_that_a_record_misstates_are_refused(five: Consortium) -> None:
    result = five.run(five.enrol())["member-0"]
    attempt = result.evidence.attempt

    def misstate(*parties: str, dropped: Collection[str]) -> None:
        view = DisputeView(cause="edge-disagreement", parties=parties)  # type: ignore[arg-type]  # two
        with refused("result-mismatch", "coordinator"):
            signed(five, result, disputes=(view,), dropped=tuple(sorted(dropped))).verify()

    misstate("member-0", "member-0", dropped=set())
    disputes = [Dispute(Cause.EDGE_DISAGREEMENT, "stranger", "other")]
    cover = vertex_cover(attempt.context, disputes, attempt.quorum.colluders)
    misstate("stranger", "other", dropped=cover)


def test_files_that_do_not_fit_a_record_are_refused(done: tuple[Consortium, Result]) -> None:
    _, result = done
    headless = replace(signed(*done, head=None), head_file=None)
    proof = Proof(header_of(result.evidence), b"", (), 0, ())
    evicting = replace(signed(*done, evicted=("member-0",)), evictions=Evictions(bytes(32), (proof,)))
    for forged in (
        replace(result, head_file=None),
        evicting,  # with a = 0
        replace(result, document_files={"a": b""}),
        replace(result, material_file=b"m"),
        headless,
    ):
        with refused("result-mismatch", "coordinator"):
            forged.verify()


@pytest.mark.parametrize(
    "tensors",
    [
        {"weights": np.zeros((3, 3))},
        {"weights": np.zeros((3, 2)), "bias": np.zeros(2)},
        {"other": np.zeros((3, 2))},
        {"weights": np.zeros((0, 2))},
        {"weights": np.full((3, 2), np.nan)},
        {"weights": np.zeros((3, 2), np.float32)},
        b"no safetensors",
        tensor("BF16", [1], 2),
        tensor("F64", [0, 1 << 62], 0),
    ],
)
def test_weights_that_are_none_are_refused_even_where_signed(
    done: tuple[Consortium, Result], tensors: Any
) -> None:
    consortium, result = done
    file = tensors if isinstance(tensors, bytes) else save(tensors)
    changed = result.record.model_copy(update={"head": hashlib.sha256(file).hexdigest()})
    forged = replace(result, head_file=file, record=sign_record(changed, consortium.coordinator_key))
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        forged.verify(consortium.admin.public)


def read(raw: bytes | None) -> Transcript:
    assert raw is not None
    return Transcript.from_json(raw.decode(errors="replace"))


def reopened(evidence: Evidence, key: SigningKey, **changes: Any) -> Evidence:
    return replace(evidence, opening=again(evidence.opening, key, **changes))


def header_of(evidence: Evidence) -> UploadHeader:
    assert evidence.header is not None
    return evidence.header


FORGERIES: dict[str, tuple[Callable[[Consortium, Evidence], Evidence], Cause]] = {
    "a stranger kept it": (lambda f, e: replace(e, member="stranger"), Cause.MANIFEST_MISMATCH),
    "another cohort's opening": (
        lambda f, e: reopened(e, f.coordinator_key, cohort=bytes(32)),
        Cause.WRONG_COHORT,
    ),
    "an opening by somebody else": (lambda f, e: reopened(e, f.admin), Cause.BAD_SIGNATURE),
    "an opening of another place": (
        lambda f, e: reopened(e, f.coordinator_key, sequence=1),
        Cause.CHAIN_BROKEN,
    ),
    "another opening": (
        lambda f, e: reopened(e, f.coordinator_key, terms=replace(e.opening.terms, latest_end_s=7)),
        Cause.WRONG_CONTEXT,
    ),
    "an opening of a step that the study does not have": (
        lambda f, e: reopened(e, f.coordinator_key, terms=replace(e.opening.terms, step="mean")),
        Cause.TERMS_REFUSED,
    ),
    "another study": (lambda f, e: replace(e, study=f.make_study({"version": 2})), Cause.WRONG_COHORT),
    "a study by somebody else": (
        lambda f, e: replace(e, study=again(e.study, f.coordinator_key)),
        Cause.BAD_SIGNATURE,
    ),
    "a vote too few": (
        lambda f, e: replace(e, certificate=replace(e.certificate, votes=e.certificate.votes[:1])),
        Cause.CERTIFICATE_INVALID,
    ),
    "a survivor too few": (
        lambda f, e: replace(e, certificate=replace(e.certificate, survivors=e.certificate.survivors[1:])),
        Cause.CERTIFICATE_INVALID,
    ),
    "another upload of its own": (
        lambda f, e: replace(e, own=(Survivor(e.member, bytes(32)),)),
        Cause.OWN_UPLOAD_CHANGED,
    ),
    "a survivor that sent nothing": (lambda f, e: replace(e, own=(), headers=()), Cause.OWN_UPLOAD_CHANGED),
    "a header that it did not sign": (
        lambda f, e: replace(e, headers=(again(header_of(e), f.admin),)),
        Cause.BAD_SIGNATURE,
    ),
    "a header of another upload": (
        lambda f, e: replace(
            e, headers=(again(header_of(e), Identity.load(f.folder / e.member).key, salt=bytes(32)),)
        ),
        Cause.OWN_UPLOAD_CHANGED,
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_evidence_is_refused(done: tuple[Consortium, Result], name: str) -> None:
    consortium, result = done
    forge, cause = FORGERIES[name]
    with refused(cause, ...):
        forge(consortium, result.evidence).verify(consortium.admin.public)


@pytest.mark.parametrize("field", ["own", "headers"])
def test_evidence_holds_one_upload_of_its_member(done: tuple[Consortium, Result], field: str) -> None:
    evidence = done[1].evidence
    twice = replace(evidence, **{field: getattr(evidence, field) * 2})
    with pytest.raises(Misuse):
        twice.encode()


def test_a_void_certificate_has_no_result(done: tuple[Consortium, Result], voided: Result) -> None:
    voided.evidence.verify(done[0].admin.public)
    with refused("result-mismatch", "coordinator"):
        voided.verify()


def test_nothing_of_an_earlier_round_lies_beside_a_result(
    done: tuple[Consortium, Result], tmp_path: Path
) -> None:
    consortium, result = done
    document = save({"mean": np.zeros(3)})
    views = [DocumentView(name=name, sha256=hashlib.sha256(document).hexdigest()) for name in ("a", "b")]

    def naming(*names: DocumentView, **changes: Any) -> Result:
        record = result.record.model_copy(update={"documents": names, **changes})
        documents = {view.name: document for view in names}
        return replace(
            result,
            record=sign_record(record, consortium.coordinator_key),
            document_files=documents,
            material_file=b"m",
        )

    naming(*views).save(tmp_path)
    assert len([*tmp_path.glob("*.document.safetensors")]) == 2
    headless = replace(naming(views[0], head=None), head_file=None, material_file=None)
    replace(headless, transcript_file=None).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.suffix in {".safetensors", ".json"}} == {
        "a.document.safetensors",
        "record.json",
    }
    assert not (tmp_path / "material.bin").exists()
    assert Result.load(tmp_path).document_files == {"a": document}


def test_a_result_is_judged_on_hold_out_records_beside_the_member_s_own_head(
    consortium: Consortium, tmp_path: Path
) -> None:
    round_id = consortium.open_round(consortium.enrol())
    result = consortium.together(consortium.contributions(round_id))["member-0"]
    session = consortium.member("member-0").session
    with pytest.warns(UserWarning, match="no temperature"):
        before = result.probabilities(np.eye(3))
    everything = consortium.records("member-0")
    assert judge_result(session, result, everything, None) is result  # each row was summed
    features, labels = map(
        np.concatenate, zip(consortium.data("member-0"), consortium.data("member-1"), strict=True)
    )
    ids = [f"p1-{row}" for row in range(len(consortium.data("member-0")[1]))]
    more = Records(features, labels, ids + [f"new-{row}" for row in range(len(labels) - len(ids))])
    judged = judge_result(session, result, more, None)
    assert judged.judged is not None
    assert judged.judged.records == len(labels) - len(ids)
    assert judged.judged.accuracy == result.evaluate(*consortium.data("member-1"))
    own = solve_ffc(_sums(*consortium.data("member-0")))
    assert judged.judged.own_accuracy == pytest.approx(
        (own.predict(consortium.data("member-1")[0], normalise=True) == consortium.data("member-1")[1]).mean()
    )
    assert judge_result(session, result, everything, more).judged is not None  # of a file
    unanswered = replace(result, record=result.record.model_copy(update={"period": "p2"}))
    alone = judge_result(session, unanswered, everything, None).judged
    assert alone is not None
    assert (alone.records, alone.own_accuracy) == (len(everything), None)
    with pytest.raises(CalibrationError):
        judge_result(session, result, Records(np.ones((1, 4)), [0]), more)
    # The temperature goes with the result, on disk too.
    judged.save(tmp_path / "out")
    loaded = Result.load(tmp_path / "out")
    loaded.verify(consortium.admin.public)
    assert loaded.judged == judged.judged
    sure = loaded.probabilities(np.eye(3))
    np.testing.assert_array_equal(
        sure, result.probabilities(np.eye(3), temperature=judged.judged.temperature)
    )
    assert not np.array_equal(sure, before)
    with pytest.raises(CalibrationError, match="temperature"):
        loaded.probabilities(np.eye(3), temperature=0)
    card = (tmp_path / "out/model-card.md").read_text()
    assert f"{judged.judged.accuracy:.1%} on {judged.judged.records} " in card
    assert all(key in card for key in CLASSES)
    result.save(tmp_path / "out")
    assert Result.load(tmp_path / "out").judged is None
    with pytest.raises(Misuse, match="no hold-out record"):
        result.judge(Records(np.zeros((1, 3)), [0]))


@pytest.mark.parametrize(("wrong", "worse"), [(45, False), (55, False), (65, True)])
def test_a_head_is_worse_only_where_chance_does_not_explain_it(
    done: tuple[Consortium, Result], wrong: int, *, worse: bool
) -> None:
    _, result = done
    assert result.head is not None
    own = replace(result.head, weights=-result.weights)  # always of the other opinion
    features = np.random.default_rng(0).standard_normal((100, 3))
    labels = result.predict(features)
    labels[:wrong] = 1 - labels[:wrong]
    judged = result.judge(Records(features, labels), own).judged
    assert judged is not None
    assert (judged.accuracy, judged.own_accuracy) == pytest.approx((1 - wrong / 100, wrong / 100))
    assert judged.worse == worse


def test_a_card_shows_names_as_they_are(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, question={"classes": ["HLA-B*27", "<50"]})
    consortium.publish(consortium.make_study({"version": 2, "purpose": "to `sum` [x](y)"}))
    card = consortium.run(consortium.enrol())["member-0"].model_card()
    for text in (r"0. HLA-B\*27", r"1. \<50", r"Purpose: to \`sum\` \[x\](y)"):
        assert text in card


def _sums(features: Any, labels: Any) -> FFCStatistics:
    sums = FFCStatistics(3, len(CLASSES), constant=False, normalise=True)
    sums.update(features, labels)
    return sums


def test_a_result_has_the_documents_that_its_study_publishes(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, after={"publish": ["lda", "ncm", "pooled"]})
    result = consortium.run(consortium.enrol())["member-0"]
    assert set(result.read_arrays("pooled")) == {"V", "U", "counts"}
    with pytest.raises(Misuse, match=r"posterior.*lda, ncm, pooled"):
        result.read_arrays("posterior")
    refused = document_file(refusal_document(CalibrationError("too few rows")))
    with pytest.raises(Misuse, match="lda: CalibrationError"):
        replace(result, document_files={"lda": refused}).read_arrays("lda")
    assert {name: each.temperature for name, each in result.heads.items()} == {"lda": 1.0, "ncm": None}
    with pytest.raises(Misuse, match="no head"):
        _ = replace(result, head_file=None).calibrated
    with pytest.raises(CalibrationError, match=r"\b4 .*\b3\b"):
        result.evaluate(np.ones((2, 4)), [0, 1])
    with pytest.raises(Misuse, match="usable"):
        result.evaluate(np.zeros((2, 3)), [0, 1])
