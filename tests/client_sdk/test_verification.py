"""Verification of a noisy sum's result."""

from pathlib import Path

from client_sdk.result import Result
from tests.client_sdk.test_result import signed
from tests.support.consortium import NOISY, Consortium
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import NoiseView


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
