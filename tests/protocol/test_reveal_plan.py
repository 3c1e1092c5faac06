"""Which secrets a certified set needs, and which of their shares a decryptor reveals (wire: Reveals)."""

from dataclasses import replace

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.reveal_plan import due_secrets


@pytest.fixture(scope="module")
def attempt() -> Attempt:
    federation = Federation(5)
    return Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )


def test_both_secrets_of_one_member_are_never_due(attempt: Attempt) -> None:
    """For members outside the set b_w stays secret; for members inside it, the edges to other members inside do."""
    for outside in range(1 << 5):
        lost = {m for place, m in enumerate(attempt.members) if outside >> place & 1}
        staying = tuple(m for m in attempt.members if m not in lost)
        due = [each for dealer in staying for each in due_secrets(replace(attempt), dealer, staying)]
        assert {each.dealer for each in due if each.lost is None} == set(staying)
        assert {each.lost for each in due} - {None} <= lost
