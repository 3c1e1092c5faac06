"""Verification of a result against its evidence."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from safetensors.numpy import save

from client_sdk.result import Result
from tests.client_sdk.test_counting import Counting
from tests.client_sdk.test_periods import HEAD, judge, make_judging
from tests.client_sdk.test_result import signed
from tests.support.consortium import NOISY, Consortium
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.calibration.head_file import Calibrated
from veilsum.protocol.causes import Cause
from veilsum.protocol.record import DisputeView
from veilsum.protocol.rest import HEAD_METADATA, NoiseView


def test_noise_that_a_record_misstates_is_refused(
    stage: Stage, tmp_path: Path, done: tuple[Consortium, Result]
) -> None:
    consortium = Consortium(stage, tmp_path, question={**NOISY, "noise": {**NOISY["noise"], "recipe": "sum"}})
    noisy = consortium.run(consortium.enrol())["member-0"]
    empty = noisy.record.solution.model_copy(update={"empty_classes": (1,)})
    # The noise makes rows, and columns of a class without any.
    signed(consortium, noisy, rows=noisy.spec.question.records_max + 1, solution=empty).verify()
    assert noisy.record.noise is not None
    others = [
        noisy.record.noise.model_copy(update={name: 1.01 * getattr(noisy.record.noise, name)})
        for name in NoiseView.model_fields
    ]
    none = noisy.record.solution.model_copy(update={"empty_classes": (0, 1)})
    for forged in (
        signed(consortium, noisy, solution=none),
        signed(*done, noise=noisy.record.noise),
        *(signed(consortium, noisy, noise=noise) for noise in (None, *others)),
    ):
        with refused(Cause.RESULT_MISMATCH, "coordinator"):
            forged.verify()


def test_disputes_may_name_every_member(five: Consortium) -> None:
    round_id = five.open_round(five.enrol())
    flows = five.contributions(round_id, five.ids[:4])
    result = five.together(flows, stuck=five.expiring(round_id))["member-0"]
    star = [DisputeView(cause="edge-disagreement", parties=(each, five.ids[4])) for each in five.ids[:4]]
    signed(five, result, disputes=tuple(star), dropped=five.ids[4:]).verify()


def test_counts_that_allow_no_sum_are_refused(stage: Stage, tmp_path: Path) -> None:
    counting = Counting(stage, tmp_path)
    _, results = counting.both()
    result = results["member-0"]
    signed(counting, result).verify()
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        signed(counting, result, reached=(0,) * len(result.record.reached)).verify()


def test_a_judgement_with_a_head_is_refused(stage: Stage, tmp_path: Path) -> None:
    judging = make_judging(stage, tmp_path)
    result = judge(judging, "judge-1")["member-0"]
    assert result.record.noise is not None
    head = Calibrated(replace(HEAD, bias=None), noise=result.record.noise.model_dump())
    file = save(head.arrays, {HEAD_METADATA: json.dumps(head.notes)})
    forged = signed(judging, result, head=sha256(file).hexdigest())
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        replace(forged, head_file=file).verify()
