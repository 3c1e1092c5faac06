"""A certified attempt that is closed without a sum."""

from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Failed, Revealing


def test_the_operator_closes_a_certified_attempt_without_a_sum() -> None:
    federation = Federation(5)
    phase = federation.reach(Revealing)
    closed = phase.cancel(federation.now_s, "no sum")
    assert isinstance(closed, Failed)
    assert closed.closing == phase.certificate
    assert closed.link.reason == "none"
    assert {closed.request_for(member) for member in federation.ids} == {phase.certificate}
