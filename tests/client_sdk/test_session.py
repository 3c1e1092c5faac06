"""What flows share."""

from client_sdk.effects import Pause
from client_sdk.session import POLL_MIN_S
from tests.client_sdk.federation import Federation


def test_only_a_poll_that_came_back_at_once_is_followed_by_a_pause(federation: Federation) -> None:
    session = federation.member("member-0").session
    now_s = federation.clock.now_s
    assert list(session.waited(now_s, news=False)) == [Pause(POLL_MIN_S)]
    assert list(session.waited(now_s - POLL_MIN_S, news=False)) == []
    assert list(session.waited(now_s, news=True)) == []
