"""A member of a federation, blocking and asynchronous: the SDK's front door."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from client_sdk.conversations import LANES, PATIENCE_S, Conversations, RosterSource
from client_sdk.effects import Flow
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.progress import Watcher
from client_sdk.records import Records
from client_sdk.reservations import Run
from client_sdk.result import Result
from client_sdk.surroundings import THIS_MACHINE, Surroundings
from client_sdk.transport import AsyncDriver, BlockingDriver, ClientCertificate

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", BlockingDriver, AsyncDriver)


class _Front(Generic[D]):
    """What both kinds of member share.

    Args:
        url: the coordinator's address.
        identity, policy, roster, progress, patience_s, lanes, transcripts, surroundings: as `Conversations`.
        verify: True to trust the system's authorities, a PEM file's path to trust those, False for none.
        cert: this client's certificate if the coordinator asks for one: a PEM file, or (certificate, key).
        driver: another way to the coordinator, in tests.

    Raises:
        IdentityError: another process uses the identity.
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
        patience_s: float = PATIENCE_S,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        lanes: int = LANES,
        transcripts: bool = False,
        surroundings: Surroundings = THIS_MACHINE,
        driver: D | None = None,
    ) -> None:
        self._driver: D = driver or self._drivers(url, verify=verify, cert=cert)
        self._conversations = Conversations(
            identity,
            policy,
            roster,
            progress=progress,
            patience_s=patience_s,
            lanes=lanes,
            transcripts=transcripts,
            surroundings=surroundings,
        )

    def ledger(self) -> tuple[Run, ...]:
        """Every run that this member answered, with rows used and skipped; asks nobody."""
        return self._conversations.ledger()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._conversations.session.member}>"


def _blocking(
    flow: Callable[Concatenate[Conversations, P], Flow[T]],
) -> Callable[Concatenate["Member", P], T]:
    """A conversation as a method that returns its outcome."""

    @wraps(flow)
    def method(self: "Member", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._driver.run(flow(self._conversations, *args, **kwargs))

    return method


def _awaited(
    flow: Callable[Concatenate[Conversations, P], Flow[T]],
) -> Callable[Concatenate["AsyncMember", P], Awaitable[T]]:
    """A conversation as a coroutine."""

    @wraps(flow)
    async def method(self: "AsyncMember", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.run(flow(self._conversations, *args, **kwargs))

    return method


class Member(_Front[BlockingDriver]):
    """A member that blocks through every phase; its methods are those of `Conversations`, which say what they do."""

    _drivers = BlockingDriver

    enrol = _blocking(Conversations.enrol)
    contribute = _blocking(Conversations.contribute)
    cohort = _blocking(Conversations.cohort)
    runs = _blocking(Conversations.runs)
    studies = _blocking(Conversations.studies)
    study = _blocking(Conversations.study)
    sums = _blocking(Conversations.sums)
    give_up = _blocking(Conversations.give_up)

    def join(self, records: Records, *, once: bool = False, period: str | None = None) -> Iterator[Result]:
        """Take part in the runs of approved studies until stopped: enrol, contribute, help to decrypt and to erase, verify.

        Args:
            records: everything this member has.
            once: end after one run.
            period: take part in runs of this period only; None for any.

        Yields:
            The verified result of each run.

        Raises:
            Declined, PeerFault, Misuse, CalibrationError: with `once` alone; otherwise `progress` is told, and the member goes on.
            ClientError: see `client_sdk.errors`.
        """
        agent = self._conversations.agent(records, once=once, period=period)
        while (result := self._driver.run(self._conversations.joined(agent))) is not None:
            yield result

    def close(self) -> None:
        """Close the connections and give the identity's folder back."""
        self._driver.close()
        self._conversations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncMember(_Front[AsyncDriver]):
    """The same as `Member` on an event loop: the arguments, methods and errors are those."""

    _drivers = AsyncDriver

    enrol = _awaited(Conversations.enrol)
    contribute = _awaited(Conversations.contribute)
    cohort = _awaited(Conversations.cohort)
    runs = _awaited(Conversations.runs)
    studies = _awaited(Conversations.studies)
    study = _awaited(Conversations.study)
    sums = _awaited(Conversations.sums)
    give_up = _awaited(Conversations.give_up)

    async def join(
        self, records: Records, *, once: bool = False, period: str | None = None
    ) -> AsyncIterator[Result]:
        """As `Member.join`."""
        agent = self._conversations.agent(records, once=once, period=period)
        while (result := await self._driver.run(self._conversations.joined(agent))) is not None:
            yield result

    async def close(self) -> None:
        """As `Member.close`."""
        await self._driver.close()
        self._conversations.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
