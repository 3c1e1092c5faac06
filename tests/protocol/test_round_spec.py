from dataclasses import replace

import pytest

from tests.study.specs import noisy, spec_of
from veilsum.protocol.round_spec import RoundSpec

EXACT, NOISY = spec_of(ring_bits=32), noisy("sum", "sum", {"kind": "ffc"})


@pytest.mark.parametrize(
    ("spec", "period", "step", "adds_noise", "bits"),
    [
        (EXACT, "2026", "rows", False, 32),
        (EXACT, "2026", "sum", False, 32),
        (EXACT, "judge-1", "judge", True, 48),
        (NOISY, "2026", "sum", True, 48),
        (NOISY, "rehearsal-1", "sum", False, 48),
        (NOISY, "judge-1", "judge", True, 48),
    ],
)
def test_sums_over_data_of_a_noisy_study_have_noise_and_judgements_always(
    spec: RoundSpec, period: str, step: str, *, adds_noise: bool, bits: int
) -> None:
    spec = replace(spec, period=period, step=step)
    assert (spec.adds_noise, spec.ring_bits) == (adds_noise, bits)
