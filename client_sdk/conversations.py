"""What a blocking and an asynchronous member share: the folder's lock, the session, and one conversation at a time."""

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from client_sdk.agent import Agent
from client_sdk.api import Coordinator
from client_sdk.contribution import contribute
from client_sdk.effects import Flow, compute
from client_sdk.enrolment import enrol
from client_sdk.errors import Misuse, PeerFault
from client_sdk.identity import Identity
from client_sdk.policy import Policy, bytes_of
from client_sdk.progress import Reporter, Watcher
from client_sdk.records import Records
from client_sdk.reservations import Run
from client_sdk.result import Result
from client_sdk.retry import Caller
from client_sdk.session import Session
from client_sdk.signing import Signer
from client_sdk.store import Store
from client_sdk.surroundings import THIS_MACHINE, Surroundings
from protocol.messages import Roster
from protocol.parameters import Quorum
from protocol.rest import CohortView, RunsView, StudyView
from protocol.study import Content
from veilsum.study.answers import Pooled

T = TypeVar("T")

RosterSource = Roster | bytes | str | os.PathLike[str] | None


PATIENCE_S = 900.0
LANES = 4


class Conversations:
    """One identity's conversations with its coordinator, as flows; none does anything before its driver begins it.

    Args:
        identity: who this member is; its folder is locked until `close`.
        policy: what this member insists on.
        roster: the admin's roster: the object, its bytes, a path to them, or None to fetch it from the
            coordinator. However it comes, it is checked against `policy.admin_key`.
        progress: is told what the member does and waits for; called from the lanes' threads too, never twice
            at a time.
        patience_s: seconds for which an unreachable coordinator is tried again.
        lanes: chunks in flight.
        transcripts: fetch and replay each round's transcript also in cohorts of more than 200 members: tens of
            megabytes each.
        surroundings: clock and randomness; another one in tests only.

    Raises:
        IdentityError: another process uses the identity.
        PeerFault: the roster passed is not the admin's, or older than one seen.
        StateError: the stored state is damaged.
    """

    def __init__(
        self,
        identity: Identity,
        policy: Policy,
        roster: RosterSource = None,
        *,
        progress: Watcher | None = None,
        patience_s: float = PATIENCE_S,
        lanes: int = LANES,
        transcripts: bool = False,
        surroundings: Surroundings = THIS_MACHINE,
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

    # Flows, one at a time: `Member` and `AsyncMember` run them

    def enrol(self, cohort: str | bytes, records: Records | None = None) -> Flow[Quorum]:
        """Join a cohort and wait until it is formed; again, only say what holds.

        The study is checked and the answer given first: yes reserves the selected records, no is final for the study and period.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.
            records: everything this member has; None if it has answered for the study and period before.

        Returns:
            The cohort's numbers; `caution()` says what very small ones mean.

        Raises:
            Declined: too few of the records are free.
            PeerFault: the roster, the study, the coordinator, the manifest or the policy refuses.
            CalibrationError: the features do not have the study's dimension.
            ClientError: see `client_sdk.errors`.
        """
        return self._alone(partial(enrol, self.session, _cohort(cohort), records))

    def cohort(self, cohort: str | bytes, after: int | None = None) -> Flow[CohortView]:
        """A cohort as the coordinator shows it, which proves nothing: its `rounds` name the round to take part in.

        A member that waits for a round by this call is heard from: the operator is shown who is there.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.
            after: a `version` that was shown, to wait until there is another or a long poll ends; None to look now.

        Raises:
            PeerFault: there is no such cohort.
            ClientError: see `client_sdk.errors`.
        """
        return self._alone(partial(self.session.coordinator.cohort, _cohort(cohort), after))

    def runs(self, after: int | None = None) -> Flow[RunsView]:
        """The federation's runs, as the coordinator shows them.

        Args:
            after: a `revision` that was shown, to wait until there is another or a long poll ends; None to look now.
        """
        return self._alone(partial(self.session.coordinator.runs, self.session.policy.federation, after))

    def studies(self) -> Flow[tuple[StudyView, ...]]:
        """The studies that were published, as the coordinator shows them."""
        return self._alone(partial(self.session.coordinator.studies, self.session.policy.federation))

    def study(self, study: str | bytes) -> Flow[Content]:
        """Fetch and check a study, to read it before you approve it.

        Args:
            study: its hash, 64 hexadecimal digits or 32 bytes.

        Raises:
            PeerFault: wrong-federation, bad-signature or study-refused.
        """
        study_hash = bytes_of(study, "study")

        def flow() -> Flow[Content]:
            roster = yield from self.session.roster()
            _, content = yield from self.session.study(roster, study_hash)
            return content

        return self._alone(flow)

    def contribute(self, round_id: str) -> Flow[Result]:
        """Take part in a round until its result is verified, with the records that were reserved at enrolment.

        After a crash at any point the same call goes on where it was; for a round that is over it
        returns the verified result again. If the study withholds rare classes, an indicator comes first: the member counts it for
        itself, then waits for the operator's next round and takes part in that.

        Args:
            round_id: 16 hexadecimal digits.

        Raises:
            NoResult: the round ended without a result, or went on without this member.
            PeerFault: the coordinator broke a rule, or the policy refuses the round.
            ClientError: see `client_sdk.errors`.
        """
        return self._alone(partial(contribute, self.session, _round(round_id)))

    def sums(self, result: Result) -> Flow[Pooled]:
        """The pooled statistics behind a result, for a member that the roster lists as a reader (`readers`).

        They are checked against the signed record, and the head against them (`client_sdk.sums.verify_sums`).

        Args:
            result: that `contribute` or `join` returned.

        Returns:
            Statistics by kind, such as `calibration.FFCStatistics` under "ffc".

        Raises:
            PeerFault: forbidden for others than readers; result-mismatch.
            ClientError: see `client_sdk.errors`.
        """
        from client_sdk.sums import verify_sums  # noqa: PLC0415 - readers alone need it

        most = 8 * result.spec.elements + (1 << 16)

        def flow() -> Flow[Pooled]:
            content = yield from self.session.coordinator.sums(result.record.round, most)
            return (yield from compute(partial(verify_sums, result, content)))

        return self._alone(flow)

    def give_up(self, study: str, period: str) -> Flow[None]:
        """Open nothing more of a run, for good. Its records are free once every attempt has ended without spending them.

        Args:
            study: its name, or the digest of its approval or question in hexadecimal.
            period: which records.

        Raises:
            Misuse: this member holds no such run.
        """

        def flow() -> Flow[None]:
            ledger = self.session.store.ledger
            names = [
                run
                for run in ledger.runs()
                if study in {run.study, run.approval.hex(), run.question.hex()} and run.period == period
            ]
            if not names:
                raise Misuse(f"the ledger has no run of {study!r}, period {period!r}: see `ledger()`")
            for run in names:
                ledger.give_up(run)
            with suppress(PeerFault):  # an attempt that has not ended yet holds its records until it has
                yield from self.session.settle()

        return self._alone(flow)

    def joined(self, agent: Agent) -> Flow[Result | None]:
        """The next result of an agent; None at its end."""
        return self._alone(agent.next)

    def agent(self, records: Records, *, once: bool = False, period: str | None = None) -> Agent:
        """What `join` steps through."""
        return Agent(self.session, records, once=once, period=period)

    def ledger(self) -> tuple[Run, ...]:
        """Every run that this member answered, with rows used and skipped; asks nobody."""
        return self.session.store.ledger.runs()

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
        raise Misuse(f"invalid round id {value!r}: expected 16 hexadecimal digits")
    return value


def _cohort(value: str | bytes) -> bytes:
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise Misuse(f"invalid cohort id {value!r}: expected 64 hexadecimal digits or 32 bytes")
    return raw
