"""A cohort in which a member never pairs: the others pair afresh."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from client_sdk.database import StateDatabase
from client_sdk.effects import Pause, Request
from tests.support.consortium import Consortium, asked
from tests.support.serving import Sent, Stage
from veilsum.protocol.member import Lapsed, Paired, Ready
from veilsum.protocol.messages import Pairing


def test_a_member_pairs_once_under_each_manifest(stage: Stage, tmp_path: Path) -> None:
    """Also if it is time to look for other runs while a poll brings the newer manifest."""
    consortium = Consortium(stage, tmp_path, members=5)
    cohort = consortium.open_cohort()
    consortium.run_until(
        consortium.member("member-4").enrol(bytes.fromhex(cohort), consortium.records("member-4")), "PUT"
    )
    flows = {
        member: agent.next_result() for member, agent in consortium.agents().items() if member != "member-4"
    }

    def on_request(member: str, sent: Sent, moment: str) -> None:
        if (member, moment) == ("member-0", "after") and "/pairings/" in sent.path:
            consortium.clock.ahead_s += 31.0  # a long poll

    consortium.on_request = on_request

    def stuck() -> bool:
        view = consortium.operator.cohort(cohort)
        if view.deadline_s is None:
            return False
        stage.pass_time(view.deadline_s)
        return True

    consortium.together(flows, stuck=stuck)
    view = consortium.operator.cohort(cohort)
    assert (view.state, view.left_out) == ("formed", ("member-4",))
    for member in consortium.ids[:4]:
        sent = {Pairing.from_bytes(each.body) for each in consortium.sent[member] if each.kind == "Pairing"}
        assert len({pairing.manifest for pairing in sent}) == len(sent) == 2, member
        held = consortium.open[member].session.store.load_phase(bytes.fromhex(cohort))
        assert held is not None
        assert isinstance(held.phase, Ready)


def test_a_member_that_stopped_before_it_sent_its_pairing_sends_it_at_once(consortium: Consortium) -> None:
    """The others' windows are short: it waits for nothing before."""
    cohort = bytes.fromhex(consortium.open_cohort())
    for member in consortium.ids:
        consortium.run_until(consortium.member(member).enrol(cohort, consortium.records(member)), "PUT")
    consortium.until(consortium.member("member-0").enrol(cohort), "/pairings/", "before").close()
    agent = consortium.member("member-0").make_agent(consortium.records("member-0"), once=True, period=None)
    effects = (effect for _state, effect in consortium.steps(agent.next_result()))
    before = [*takewhile(lambda effect: not asked(effect).startswith("PUT"), effects)]
    assert {asked(effect) for effect in before if "/pairings/" in asked(effect)}
    assert not any(
        isinstance(effect, Pause) or (isinstance(effect, Request) and effect.wait_s) for effect in before
    )


def test_private_keys_lapse_after_a_write_that_failed(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk refuses the keys of the pairs, and the private keys stay stored: the running process erases them in time."""
    cohort = bytes.fromhex(consortium.open_cohort())
    for member in consortium.ids:
        consortium.run_until(consortium.member(member).enrol(cohort, consortium.records(member)), "PUT")
    for member in consortium.ids[1:]:
        consortium.run_until(consortium.member(member).enrol(cohort), "/pairings/")
    last = consortium.member("member-0").enrol(cohort)
    session, write = consortium.open["member-0"].session, StateDatabase.write

    @contextmanager
    def failing(database: StateDatabase) -> Iterator[Any]:
        with database.read() as opened:
            inside = opened.in_transaction
        with write(database) as opened:
            yield opened
            held = session.store.load_phase(cohort)
            if not inside and held is not None and isinstance(held.phase, Ready):
                raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patched:
        patched.setattr(StateDatabase, "write", failing)
        with pytest.raises(OSError, match="no space left"):
            consortium.alone(last)
    held = session.store.load_phase(cohort)
    assert held is not None
    assert isinstance(held.phase, Paired)
    consortium.clock.ahead_s += held.phase.lapses_s
    session.erase_expired()
    held = session.store.load_phase(cohort)
    assert held is not None
    assert isinstance(held.phase, Lapsed)
