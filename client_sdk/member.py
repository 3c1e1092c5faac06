"""A member of a federation, blocking and asynchronous: the SDK's front door."""

import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

import numpy as np

from client_sdk.agent import Agent
from client_sdk.api import CoordinatorApi
from client_sdk.conversation import contribute_to_round
from client_sdk.effects import Flow
from client_sdk.enrolment import enrol_in_cohort
from client_sdk.environment import THIS_MACHINE, Environment
from client_sdk.errors import Misuse, PeerFault, UnexpectedAnswer, Unreachable
from client_sdk.identity import Identity
from client_sdk.policy import Policy, bytes_of
from client_sdk.progress import Reporter, Watcher
from client_sdk.records import Records, unsummed_rows
from client_sdk.reservations import Run, State
from client_sdk.result import Result
from client_sdk.retry import RetryingClient
from client_sdk.session import Session
from client_sdk.signing import Signer
from client_sdk.store import Store
from client_sdk.transport import AsyncDriver, BlockingDriver, ClientCertificate, blocking_method
from client_sdk.verification import verify_sums
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import Head
from veilsum.protocol.messages import Roster
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.rest import CohortView, RunsView, StudyView
from veilsum.protocol.sizing import Quorum
from veilsum.protocol.study import Content
from veilsum.study.answers import Pooled, solve_alone
from veilsum.study.canaries import CanaryPack
from veilsum.system.intervals import MEMBER_RETRY_S

T = TypeVar("T")

RosterSource = Roster | bytes | str | os.PathLike[str] | None


UPLOAD_LANES = 4


class Conversations:
    """One identity's conversations with its coordinator, as flows: nothing happens until a driver runs them.

    Args:
        identity: this member's identity; its folder is locked until `close`.
        policy: what this member insists on.
        roster: the admin's roster: the object, its bytes, the path of its file, or None to fetch it from the
            coordinator. In each case it is checked against `policy.admin_key`.
        progress: called with what the member does and waits for, from any thread, one call at a time. By default events go
            to the logger `veilsum`, and waits are logged as warnings.
        patience_s: how long to retry while the coordinator is unreachable, in seconds.
        lanes: how many chunks to send at once.
        transcripts: also fetch and replay each round's transcript, as an auditor does: tens of megabytes with 200 members.
        environment: clock and randomness; tests replace it.

    Raises:
        IdentityError: another process uses the identity.
        Misuse: the folder's ledger is another member's.
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
        patience_s: float = MEMBER_RETRY_S,
        lanes: int = UPLOAD_LANES,
        transcripts: bool = False,
        environment: Environment = THIS_MACHINE,
    ) -> None:
        if lanes < 1 or patience_s < 0:
            raise Misuse(
                f"lanes: got {lanes}, expected at least 1; patience_s: got {patience_s}, expected at least 0"
            )
        _expect_kind("identity", identity, Identity, "Identity.load(folder)")
        _expect_kind("policy", policy, Policy, "Policy(admin_key=…, approved={…})")
        given = _load_roster(roster)
        if given is not None:
            policy.check_roster(given)
        self.lock, store = identity.lock(), Store(identity.folder)
        try:
            report = Reporter(progress)
            signer = Signer(identity.member, identity.key, environment)
            store.database.open()
            store.database.check_member(identity.member)
            self.session = Session(
                member=identity.member,
                key=identity.key,
                store=store,
                lock=self.lock,
                policy=policy,
                coordinator=CoordinatorApi(
                    RetryingClient(patience_s, environment, report, signer, self._erase_expired)
                ),
                report=report,
                environment=environment,
                given=given,
                lanes=lanes,
                transcripts=transcripts,
            )
            if given is not None:
                store.see_roster(given)
        except BaseException:
            store.database.close()
            self.lock.release()
            raise
        self._open, self._busy, self._turn = True, False, threading.Lock()

    # Flows, one at a time: `Member` and `AsyncMember` run them

    def enrol(self, cohort: str | bytes, records: Records | None = None) -> Flow[Quorum]:
        """Join a cohort and wait until it is formed. A repeated call returns the same numbers.

        The member first checks the study and answers. Yes reserves the selected records; no is final for the study and period.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.
            records: all records of this member; None if it has already answered for the study and period.

        Returns:
            The cohort's numbers; `caution()` warns about very small ones.

        Raises:
            Declined: too few of the records are free.
            PeerFault: the roster, study or manifest is refused, by a rule or by the policy; or the coordinator refuses.
            Misuse: this member answered for the run with other data.
            CalibrationError: the features do not have the study's dimension.
            ClientError: see `client_sdk.errors`.
        """
        if records is not None:
            _expect_kind("records", records, Records, "Records(features, labels, ids)")
        return self._run_alone(enrol_in_cohort(self.session, bytes_of(cohort, "cohort"), records))

    def cohort(self, cohort: str | bytes, after: int | None = None) -> Flow[CohortView]:
        """Return a cohort as the coordinator shows it, unverified. Its `rounds` name the round to take part in.

        Waiting for a round with this call counts as liveness, which the operator can see.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.
            after: the `version` that was last shown: wait for a later one, for at most a long poll. None returns at once.

        Raises:
            PeerFault: there is no such cohort.
            ClientError: see `client_sdk.errors`.
        """
        return self._run_alone(self.session.coordinator.fetch_cohort(bytes_of(cohort, "cohort").hex(), after))

    def runs(self, after: int | None = None) -> Flow[RunsView]:
        """Return the federation's runs as the coordinator shows them, unverified.

        Args:
            after: the `revision` that was last shown: wait for a later one, for at most a long poll. None returns at once.
        """
        return self._run_alone(
            self.session.coordinator.fetch_runs(self.session.policy.federation.hex(), after)
        )

    def studies(self) -> Flow[tuple[StudyView, ...]]:
        """Return the published studies as the coordinator shows them, unverified."""
        return self._run_alone(self.session.coordinator.fetch_studies(self.session.policy.federation.hex()))

    def study(self, study: str | bytes) -> Flow[Content]:
        """Fetch and check a study, to read it before you approve it.

        Args:
            study: its hash, 64 hexadecimal digits or 32 bytes.

        Raises:
            PeerFault: wrong-federation, bad-signature or study-refused.
        """
        return self._run_alone(self.session.fetch_study(bytes_of(study, "study")))

    def canaries(self, study: str | bytes) -> Flow[CanaryPack]:
        """Fetch the canary pack of a study: public inputs, for this member's own pipeline.

        Args:
            study: its hash, 64 hexadecimal digits or 32 bytes.

        Raises:
            Misuse: the study names none.
            PeerFault: not-found before the pack is published; malformed, study-refused.
        """
        study_hash = bytes_of(study, "study")

        def flow() -> Flow[CanaryPack]:
            content = yield from self.session.fetch_study(study_hash)
            if content.rehearsal is None:
                raise Misuse(f"study {content.notes.name} has no canary pack")
            return (yield from self.session.fetch_canaries(content))

        return self._run_alone(flow())

    def contribute(self, round_id: str) -> Flow[Result]:
        """Take part in a round with the records reserved at enrolment, and return its verified result.

        After a crash the same call resumes where it stopped; for a finished round it returns the verified result again. If the
        study withholds rare classes, counts come first: the member recounts each, waits for the operator's next
        round and takes part in that.

        Args:
            round_id: 16 hexadecimal digits.

        Raises:
            NoResult: the round ended without a result, or went on without this member.
            PeerFault: the coordinator broke a rule, or the policy refuses the round.
            ClientError: see `client_sdk.errors`.
        """
        name = _check_round_id(round_id)

        def flow() -> Flow[Result]:
            result = yield from contribute_to_round(self.session, name)
            self.mark_exported(result)
            return result

        return self._run_alone(flow())

    def sums(self, result: Result) -> Flow[Pooled]:
        """Return the pooled statistics behind a result. The roster must list this member among its `readers`.

        The sums are checked against the signed record, and the head against the sums (`client_sdk.verification.verify_sums`).

        Args:
            result: as `contribute` or `join` returned it.

        Returns:
            Statistics by kind, such as `calibration.FFCStatistics` under "ffc".

        Raises:
            PeerFault: forbidden unless this member is a reader; result-mismatch.
            ClientError: see `client_sdk.errors`.
        """
        most = 8 * result.spec.elements + (1 << 16)

        def flow() -> Flow[Pooled]:
            content = yield from self.session.coordinator.fetch_sums(result.record.round, most)
            return verify_sums(result, content)

        return self._run_alone(flow())

    def give_up(self, study: str, period: str) -> Flow[None]:
        """Withdraw from a run for good. Its records are free again once every attempt has ended without spending them.

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
                for run in ledger.list_runs()
                if study in {run.study, run.approval.hex(), run.question.hex()} and run.period == period
            ]
            if not names:
                raise Misuse(
                    f"the ledger has no run of {study!r}, period {period!r}: `ledger()`, or `veilsum member ledger`, lists them"
                )
            for run in names:
                ledger.give_up(run)
            # An attempt holds its records until this member knows how it ended.
            with suppress(PeerFault, Unreachable, UnexpectedAnswer):
                yield from self.session.learn_endings()

        return self._run_alone(flow())

    def next_result(self, agent: Agent) -> Flow[Result | None]:
        """Return an agent's next result; None at its end."""
        return self._run_alone(agent.next_result())

    def mark_exported(self, result: Result) -> None:
        """Note that the caller has this result, so that `veilsum member join` does not save it again."""
        self.session.store.mark_exported(result.record.round)

    def make_agent(self, records: Records, *, once: bool = False, period: str | None = None) -> Agent:
        """Make the agent that `join` steps through."""
        _expect_kind("records", records, Records, "Records(features, labels, ids)")
        return Agent(self.session, records, once=once, period=period)

    def ledger(self) -> tuple[Run, ...]:
        """Every run over records that this member answered, with rows used and skipped; makes no request."""
        runs = self.session.store.ledger.list_runs()
        return tuple(run for run in runs if run.kind is not PeriodKind.REHEARSAL)

    def mark_summed(self, records: Records) -> int:
        """See `Member.mark_summed`."""
        _expect_kind("records", records, Records, "Records(features, labels, ids)")
        ledger = self.session.store.ledger
        marks = ledger.marks_in(self.session.policy.federation)
        return ledger.mark_summed({marks.mark_record(each) for each in set(records.keys)})

    def close(self) -> None:
        """Refuse further conversations and release the folder, after the conversation that another thread may be in."""
        with self._turn:
            self._open = False
            self._give_back()

    def _run_alone(self, flow: Flow[T]) -> Flow[T]:
        """Run one conversation at a time: two would race for one stored phase. Raises Misuse for a second one, and after `close`."""
        if self.lock.is_forked:  # two processes with one identity's keys would mask or vote twice
            raise Misuse(
                "this member was made before this process was forked: make one here, after that is closed"
            )
        with self._turn:
            if self._busy or not self._open:
                state = "in another conversation: wait for it" if self._busy else "closed: make a new one"
                raise Misuse(f"this member is {state}")
            self._busy = True
        try:
            return (yield from flow)
        finally:
            with self._turn:
                self._busy = False
                self._give_back()

    def _erase_expired(self) -> float:
        return self.session.erase_expired()

    def _give_back(self) -> None:
        if not (self._open or self._busy):
            self.session.store.database.close()
            self.lock.release()


def _expect_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raise Misuse if an argument has another type."""
    if not isinstance(value, kind):
        raise Misuse(f"{name}: got {type(value).__name__}, expected {example}")


def _load_roster(source: RosterSource) -> Roster | None:
    if source is None or isinstance(source, Roster):
        return source
    if isinstance(source, bytes):
        return Roster.from_bytes(source)
    if not isinstance(source, str | os.PathLike):
        raise Misuse(
            f"roster: got {type(source).__name__}, expected a Roster, its bytes, or the path of a signed roster file"
        )
    try:
        return Roster.from_bytes(Path(source).read_bytes())
    except OSError as error:
        raise Misuse(
            f"roster: can't read {source}: {error.strerror}. Pass the path of a signed roster file (.bin)"
        ) from error


def _check_round_id(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16}", value):
        raise Misuse(f"invalid round id {value!r}: expected 16 hexadecimal digits")
    return value


P = ParamSpec("P")
D = TypeVar("D", BlockingDriver, AsyncDriver)


class _Front(Generic[D]):
    """The shared part of `Member` and `AsyncMember`.

    Args:
        url: the coordinator's address.
        identity, policy, roster, progress, patience_s, lanes, transcripts, environment: as `Conversations`.
        verify: True to trust the system's authorities, a PEM file's path to trust those, False for none.
        cert: this client's certificate if the coordinator asks for one: a PEM file, or (certificate, key).
        driver: another way to the coordinator, in tests.

    Raises:
        IdentityError: another process uses the identity.
        Misuse: the folder's ledger is another member's.
        PeerFault: the roster passed is not the admin's, or older than one seen.
        StateError: the stored state is damaged.
    """

    _drivers: Callable[..., D]

    def __init__(
        self,
        url: str,
        identity: Identity,
        policy: Policy,
        *,
        roster: RosterSource = None,
        progress: Watcher | None = None,
        patience_s: float = MEMBER_RETRY_S,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        lanes: int = UPLOAD_LANES,
        transcripts: bool = False,
        environment: Environment = THIS_MACHINE,
        driver: D | None = None,
    ) -> None:
        self._driver: D = driver or self._drivers(url, verify=verify, cert=cert)
        self._flows = Conversations(
            identity,
            policy,
            roster,
            progress=progress,
            patience_s=patience_s,
            lanes=lanes,
            transcripts=transcripts,
            environment=environment,
        )

    def ledger(self) -> tuple[Run, ...]:
        """Every run that this member answered, with rows used and skipped; makes no request."""
        return self._flows.ledger()

    def mark_summed(self, records: Records) -> int:
        """Mark all of these records as summed: no run takes them any more. Makes no request.

        A new identity does not know which records were summed under the one that it replaces, if that one's folder was lost or restored
        from an older copy. Mark all records that you have today. Data without ids counts as one record, in which any other may stand:
        once it is marked, nothing is free.

        Args:
            records: all records to mark, unusable ones included.

        Returns:
            How many records were not marked before.

        Raises:
            StateError: the ledger is damaged.
        """
        return self._flows.mark_summed(records)

    def judge(self, result: Result, records: Records, *, held_out: Records | None = None) -> Result:
        """Evaluate a result's head on hold-out records, and compare it with a head of this member's contribution alone. Makes no request.

        Args:
            result: of a run that this member answered.
            records: all records of this member. Those that the run did not sum are the hold-out set: records that are held out for
                life, and records that its limits left out.
            held_out: use these records as the hold-out set instead.

        Returns:
            The result with `judged`; unchanged if there is no head, or no hold-out record of a class that it predicts.

        Raises:
            CalibrationError, Misuse: records of another shape.
            StateError: the ledger is damaged.
        """
        return judge_result(self._flows.session, result, records, held_out)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._flows.session.member}>"


def judge_result(session: Session, result: Result, records: Records, held_out: Records | None) -> Result:
    """See `Member.judge`."""
    if result.head_file is None:
        return result
    ledger, question, after = session.store.ledger, result.spec.question, result.content.after
    records.check_columns(question)
    run = ledger.find_run(question.digest, result.record.period)
    rows = None if run is None or run.state in {State.DECLINED, State.FREE} else ledger.load_rows(run)
    if held_out is None:
        summed = np.zeros((0, 32), np.uint8) if rows is None else rows[2]
        marks = ledger.marks_in(session.policy.federation)
        held_out = Records(*unsummed_rows(records, question, marks, summed))
    if not len(held_out):
        return result
    _, labels = held_out.usable_in(question)
    if labels.size and np.isin(labels, result.unanswered).all():
        return result
    own: Head | None = None
    if rows is not None:
        try:
            own = solve_alone(
                question.dim,
                len(question.classes),
                question.statistics[0],
                [rows[:2]],
                constant=question.constant,
                normalise=True,
                ridge=after.ridge,
                ccvr=after.ccvr,
            ).answer.head
        except CalibrationError:  # too few rows of its own for any head
            own = None
    return result.judge(held_out, own)


def _coroutine_method(
    flow: Callable[Concatenate[Conversations, P], Flow[T]],
) -> Callable[Concatenate["AsyncMember", P], Awaitable[T]]:
    """Turn a flow into a coroutine method."""

    @wraps(flow)
    async def method(self: "AsyncMember", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.run(flow(self._flows, *args, **kwargs))

    return method


class Member(_Front[BlockingDriver]):
    """A member of a federation; its methods block until they are done. `Conversations` documents those not shown here."""

    _drivers = BlockingDriver

    enrol = blocking_method(Conversations.enrol)
    contribute = blocking_method(Conversations.contribute)
    cohort = blocking_method(Conversations.cohort)
    runs = blocking_method(Conversations.runs)
    studies = blocking_method(Conversations.studies)
    study = blocking_method(Conversations.study)
    canaries = blocking_method(Conversations.canaries)
    sums = blocking_method(Conversations.sums)
    give_up = blocking_method(Conversations.give_up)

    def join(self, records: Records, *, once: bool = False, period: str | None = None) -> Iterator[Result]:
        """Take part in every run of an approved study until stopped: enrol, contribute, help to decrypt or erase, verify.

        Args:
            records: all records of this member.
            once: stop after one run.
            period: take part in runs of this period only; None for any.

        Yields:
            The verified result of each run.

        Raises:
            Declined, PeerFault, Misuse, CalibrationError: only with `once`. Otherwise they go to `progress`, and the member continues.
            ClientError: see `client_sdk.errors`.
        """
        agent = self._flows.make_agent(records, once=once, period=period)
        while (result := self._driver.run(self._flows.next_result(agent))) is not None:
            yield result
            self._flows.mark_exported(result)

    def close(self) -> None:
        """Close the connections and release the identity's folder."""
        try:
            self._driver.close()
        finally:
            self._flows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncMember(_Front[AsyncDriver]):
    """`Member` for an event loop: same arguments, methods and errors."""

    _drivers = AsyncDriver

    enrol = _coroutine_method(Conversations.enrol)
    contribute = _coroutine_method(Conversations.contribute)
    cohort = _coroutine_method(Conversations.cohort)
    runs = _coroutine_method(Conversations.runs)
    studies = _coroutine_method(Conversations.studies)
    study = _coroutine_method(Conversations.study)
    canaries = _coroutine_method(Conversations.canaries)
    sums = _coroutine_method(Conversations.sums)
    give_up = _coroutine_method(Conversations.give_up)

    async def join(
        self, records: Records, *, once: bool = False, period: str | None = None
    ) -> AsyncIterator[Result]:
        """See `Member.join`."""
        agent = self._flows.make_agent(records, once=once, period=period)
        while (result := await self._driver.run(self._flows.next_result(agent))) is not None:
            yield result
            self._flows.mark_exported(result)

    async def close(self) -> None:
        """See `Member.close`."""
        try:
            await self._driver.close()
        finally:
            self._flows.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
