"""What a blocking and an asynchronous member share: the folder's lock, the session, and one conversation at a time."""

import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from client_sdk.api import Coordinator
from client_sdk.contribution import contribute
from client_sdk.effects import Flow, compute
from client_sdk.enrolment import enrol
from client_sdk.errors import Misuse
from client_sdk.identity import Identity
from client_sdk.offer import Statistics
from client_sdk.policy import Policy
from client_sdk.progress import Reporter, Watcher
from client_sdk.result import Result
from client_sdk.retry import Caller
from client_sdk.session import Session
from client_sdk.signing import Signer
from client_sdk.store import Store
from client_sdk.supply import Maker, Supply
from client_sdk.surroundings import Surroundings
from protocol.messages import Roster
from protocol.parameters import Quorum
from protocol.rest import CohortView

T = TypeVar("T")

RosterSource = Roster | bytes | str | os.PathLike[str] | None


class Conversations:
    """One identity's conversations with its coordinator, as flows; none does anything before its driver begins it.

    Arguments, and what each flow raises, as `client_sdk.Member`'s.
    """

    def __init__(
        self,
        identity: Identity,
        roster: RosterSource,
        policy: Policy,
        *,
        progress: Watcher | None,
        patience_s: float,
        lanes: int,
        transcripts: bool = False,
        surroundings: Surroundings,
    ) -> None:
        if lanes < 1 or patience_s < 0:
            raise Misuse(f"lanes is at least 1 and patience_s at least 0, not {lanes} and {patience_s}")
        given = _roster(roster)
        if given is not None:
            policy.check_roster(given)
        self.lock = identity.lock()
        try:
            report, store = Reporter(progress), Store(identity.folder)
            signer = Signer(identity.member, identity.key, surroundings)
            store.begin()
            self.session = Session(
                member=identity.member,
                key=identity.key,
                store=store,
                policy=policy,
                coordinator=Coordinator(Caller(patience_s, surroundings, report, signer)),
                report=report,
                surroundings=surroundings,
                given=given,
                lanes=lanes,
                transcripts=transcripts,
            )
            if given is not None:
                self.session.store.see_roster(given)
        except BaseException:
            self.lock.release()
            raise
        self._open, self._busy, self._turn = True, False, threading.Lock()

    def enrol(self, cohort: str | bytes) -> Flow[Quorum]:
        """Join a cohort."""
        return self._alone(partial(enrol, self.session, _cohort(cohort)))

    def cohort(self, cohort: str | bytes, after: int | None) -> Flow[CohortView]:
        """Look at a cohort, or wait for its next change."""
        return self._alone(partial(self.session.coordinator.cohort, _cohort(cohort), after))

    def contribute(self, round_id: str, statistics: Statistics | Maker | None, lineage: str) -> Flow[Result]:
        """Take part in a round."""
        _round(round_id)

        def flow() -> Flow[Result]:
            supply = None
            if statistics is not None:
                supply = Supply.of(statistics, lineage, self.session.store.lineage_key())
            return contribute(self.session, round_id, supply)

        return self._alone(flow)

    def sums(self, result: Result) -> Flow[Any]:
        """Fetch the sums behind a result, and check them."""
        from client_sdk.sums import verify_sums  # noqa: PLC0415 - readers alone need it

        most = 8 * result.evidence.opening.terms.elements + (1 << 16)

        def flow() -> Flow[Any]:
            content = yield from self.session.coordinator.sums(result.record.round, most)
            return (yield from compute(partial(verify_sums, result, content)))

        return self._alone(flow)

    def close(self) -> None:
        """Begin no other conversation, and give the folder back: at once, or when the one under way in another thread has ended."""
        with self._turn:
            self._open = False
            self._give_back()

    def _alone(self, begin: Callable[[], Flow[T]]) -> Flow[T]:
        """Two conversations at once would race for one stored phase; nothing is begun for the second, or after `close`."""
        with self._turn:
            if self._busy or not self._open:
                state = "in another conversation: wait for it" if self._busy else "closed: make a new one"
                raise Misuse(f"this member is {state}")
            self._busy = True
        try:
            return (yield from begin())
        finally:
            with self._turn:
                self._busy = False
                self._give_back()

    def _give_back(self) -> None:
        if not (self._open or self._busy):
            self.lock.release()


def _roster(source: RosterSource) -> Roster | None:
    if source is None or isinstance(source, Roster):
        return source
    return Roster.from_bytes(source if isinstance(source, bytes) else Path(source).read_bytes())


def _round(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16}", value):
        raise Misuse(f"{value!r} is no round's id: it has 16 hexadecimal digits")
    return value


def _cohort(value: str | bytes) -> bytes:
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise Misuse(f"{value!r} is no cohort's id: it has 64 hexadecimal digits, or 32 bytes")
    return raw
