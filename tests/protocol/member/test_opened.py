from dataclasses import replace

import numpy as np
import pytest

from tests.support.simulator import Federation
from veilsum.protocol.errors import Misuse
from veilsum.protocol.member import MemberPhase, Opened, Uploaded, load_phase
from veilsum.protocol.messages import Message, Upload


def opened(federation: Federation, member: str) -> Opened:
    phase, _ = federation.ask(member, federation.phase.attempt.opening, Opened)
    return phase


def uploaded(federation: Federation, phase: Opened) -> tuple[MemberPhase, tuple[Message, ...]]:
    sealing = phase.seal(federation.random)
    sealing.chunk(np.zeros(64, np.int64))
    sealing.chunk(np.zeros(35, np.int64))
    upload, own = sealing.finish(federation.keys[phase.member])
    return phase.uploaded(upload, own)


@pytest.fixture
def federation() -> Federation:
    federation = Federation(4)
    federation.begin()
    return federation


def test_the_upload_is_stored_before_its_announcement_leaves(federation: Federation) -> None:
    phase, replies = uploaded(federation, opened(federation, "member-0"))
    assert isinstance(phase, Uploaded)
    assert replies == phase.outbox() == phase.uploads
    assert isinstance(replies[0], Upload)


def test_a_restarted_member_sends_the_very_same_bytes(federation: Federation) -> None:
    phase, replies = uploaded(federation, opened(federation, "member-0"))
    loaded = load_phase(phase.to_bytes())
    assert [message.to_bytes() for message in loaded.outbox()] == [message.to_bytes() for message in replies]


def test_nothing_is_sent_before_the_upload(federation: Federation) -> None:
    assert opened(federation, "member-0").outbox() == ()


def test_an_upload_of_another_attempt_or_member_is_a_misuse(federation: Federation) -> None:
    mine, theirs = opened(federation, "member-0"), opened(federation, "member-1")
    phase, replies = uploaded(federation, theirs)
    assert isinstance(phase, Uploaded)
    assert isinstance(replies[0], Upload)
    with pytest.raises(Misuse, match="another attempt or member"):
        mine.uploaded(replies[0], phase.own_shares)  # type: ignore[arg-type]  # stored as bytes
    later = replace(theirs, opening=federation.opening(federation.terms(latest_end_s=2_000_000)))
    with pytest.raises(Misuse, match="another attempt or member"):
        later.uploaded(replies[0], phase.own_shares)  # type: ignore[arg-type]  # stored as bytes
