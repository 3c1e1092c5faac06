"""Fields of questions for the simulator: `Federation(5, question=GRADIENTS)`."""

from typing import Any

from tests.support.simulator import Federation
from veilsum.protocol.messages import NO_CONTEXT, Link

GRADIENTS: dict[str, Any] = {
    "ring_bits": 48,
    "noise": {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum+16-gradients"},
}
"""A question with 31 steps in one cohort."""
MEAN_SUM: dict[str, Any] = {**GRADIENTS, "noise": {**GRADIENTS["noise"], "recipe": "mean+sum"}}


def link(federation: Federation, place: tuple[int, int] = (0, 0), **changes: Any) -> Link:
    """Make a link of a VOID of another step in the federation's cohort, with changes."""
    values: dict[str, Any] = {
        "cohort": federation.manifest.cohort,
        "sequence": place[0],
        "attempt": place[1],
        "question": federation.content.question.digest,
        "period": federation.manifest.period,
        "step": "sum",
        "repeats": federation.manifest.repeats,
        "context": bytes([1, *place]) + bytes(29),
        "reason": "cancelled",
        "survivors": NO_CONTEXT,
        **changes,
    }
    if values["reason"] == "none" and "survivors" not in changes:
        values["survivors"] = b"\x05" * 32
    return Link(**values)
