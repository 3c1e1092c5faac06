from dataclasses import replace

import numpy as np
import pytest

from tests.support.simulator import Federation
from veilsum.protocol.errors import Misuse
from veilsum.protocol.member import MemberPhase, Opened, Uploaded
from veilsum.protocol.messages import Message, Upload


def opened(federation: Federation, member: str) -> Opened:
    phase, _ = federation.ask(member, federation.phase.attempt.opening, Opened)
    return phase


def uploaded(federation: Federation, phase: Opened) -> tuple[MemberPhase, tuple[Message, ...]]:
    sealing = phase.begin_sealing(federation.random)
    sealing.mask_next_chunk(np.zeros(64, np.int64))
    sealing.mask_next_chunk(np.zeros(35, np.int64))
    upload, own = sealing.finish(federation.keys[phase.member])
    return phase.store_upload(upload, own)


@pytest.fixture
def federation() -> Federation:
    federation = Federation(4)
    federation.begin()
    return federation


def test_the_upload_is_stored_before_its_announcement_leaves(federation: Federation) -> None:
    phase, replies = uploaded(federation, opened(federation, "member-0"))
    assert isinstance(phase, Uploaded)
    assert replies == phase.messages_to_resend() == phase.uploads
    assert isinstance(replies[0], Upload)


def test_an_upload_of_another_attempt_or_member_is_a_misuse(federation: Federation) -> None:
    mine, theirs = opened(federation, "member-0"), opened(federation, "member-1")
    phase, replies = uploaded(federation, theirs)
    assert isinstance(phase, Uploaded)
    assert isinstance(replies[0], Upload)
    with pytest.raises(Misuse):
        mine.store_upload(replies[0], phase.own_shares)  # type: ignore[arg-type]  # stored as bytes
    later = replace(theirs, opening=federation.opening(federation.terms(latest_end_s=2_000_000)))
    with pytest.raises(Misuse):
        later.store_upload(replies[0], phase.own_shares)  # type: ignore[arg-type]  # stored as bytes
