"""A member of a federation, blocking and asynchronous: the SDK's front door."""

from typing import Any, Self

from client_sdk.conversations import Conversations, RosterSource
from client_sdk.identity import Identity
from client_sdk.offer import Statistics
from client_sdk.policy import Policy
from client_sdk.progress import Watcher
from client_sdk.result import Result
from client_sdk.supply import Maker
from client_sdk.surroundings import THIS_MACHINE, Surroundings
from client_sdk.transport import AsyncDriver, BlockingDriver, ClientCertificate
from protocol.parameters import Quorum
from protocol.rest import CohortView

PATIENCE_S = 900.0
LANES = 4


class Member:
    """A member that blocks through every phase.

    Args:
        url: the coordinator's address.
        identity: who this member is; its folder is locked until `close`.
        roster: the admin's roster: the object, its bytes, a path to them, or None to fetch it from the
            coordinator. However it comes, it is checked against `policy.admin_key`.
        policy: what this member insists on.
        progress: is told what the member does and waits for; called from the lanes' threads too, never twice
            at a time.
        patience_s: seconds for which an unreachable coordinator is tried again.
        verify: True to trust the system's authorities, a PEM file's path to trust those, False for none.
        cert: this client's certificate where the coordinator asks for one: a PEM file, or (certificate, key).
        lanes: chunks in flight.
        transcripts: fetch and replay each round's transcript also in cohorts of more than 200 members, where it takes tens
            of megabytes.
        surroundings: clock and randomness; another one in tests only.
        driver: another way to the coordinator, in tests.

    Raises:
        IdentityError: another process uses the identity.
        PeerFault: the roster passed is not the admin's, or older than one seen.
        StateError: the stored state is damaged.
    """

    def __init__(
        self,
        url: str,
        identity: Identity,
        roster: RosterSource,
        policy: Policy,
        *,
        progress: Watcher | None = None,
        patience_s: float = PATIENCE_S,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        lanes: int = LANES,
        transcripts: bool = False,
        surroundings: Surroundings = THIS_MACHINE,
        driver: BlockingDriver | None = None,
    ) -> None:
        self._driver = driver or BlockingDriver(url, verify=verify, cert=cert)
        self._conversations = Conversations(
            identity,
            roster,
            policy,
            progress=progress,
            patience_s=patience_s,
            lanes=lanes,
            transcripts=transcripts,
            surroundings=surroundings,
        )

    def enrol(self, cohort: str | bytes) -> Quorum:
        """Join a cohort and wait until it is formed; again, only say what holds.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.

        Returns:
            The cohort's numbers; `caution()` says what very small ones mean.

        Raises:
            PeerFault: the roster, the coordinator, the manifest or the policy refuses.
            ClientError: see `client_sdk.errors`.
        """
        return self._driver.run(self._conversations.enrol(cohort))

    def cohort(self, cohort: str | bytes, after: int | None = None) -> CohortView:
        """A cohort as the coordinator shows it, which proves nothing: its `rounds` name the round to take part in.

        Whoever waits for a round by this, rather than as anybody, is heard from: the operator is shown who is there.

        Args:
            cohort: its id, 64 hexadecimal digits or 32 bytes.
            after: a `version` that was shown, to wait until there is another or a long poll ends; None to look now.

        Raises:
            PeerFault: there is no such cohort.
            ClientError: see `client_sdk.errors`.
        """
        return self._driver.run(self._conversations.cohort(cohort, after))

    def contribute(
        self, round_id: str, statistics: Statistics | Maker | None, *, lineage: str = "main"
    ) -> Result:
        """Take part in a round until its result is verified.

        After a crash at any point the same call goes on where it was; for a round that is over it
        returns the verified result again. Where the federation withholds classes that few members hold, an indicator round
        comes first: the member counts it for itself, then waits for the operator's next round and takes part in that.

        Args:
            round_id: 16 hexadecimal digits.
            statistics: what to sum: `Records`, from which each round gets what it asks for; statistics that are made already,
                such as `calibration.FFCStatistics`, which fit a round that withholds what they leave out; any function
                from `Wanted` to statistics of the same records; or None to help decrypting only.
            lineage: this member's name for the data set; the same name for the same records, always.

        Raises:
            NoResult: the round ended without weights, or went on without this member.
            PeerFault: the coordinator broke a rule, or the policy refuses the round.
            ClientError: see `client_sdk.errors`.
        """
        return self._driver.run(self._conversations.contribute(round_id, statistics, lineage))

    def sums(self, result: Result) -> Any:
        """The pooled statistics behind a result, for a member that the roster lists as a reader (`readers`).

        They are checked against the signed record, and the head against them (`client_sdk.sums.verify_sums`).

        Args:
            result: that `contribute` returned.

        Returns:
            What the round's question pools, such as `calibration.FFCStatistics`.

        Raises:
            PeerFault: forbidden for who is no reader; result-mismatch.
            ClientError: see `client_sdk.errors`.
        """
        return self._driver.run(self._conversations.sums(result))

    def close(self) -> None:
        """Close the connections and give the identity's folder back."""
        self._driver.close()
        self._conversations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Member {self._conversations.session.member}>"


class AsyncMember:
    """The same as `Member` on an event loop: the arguments, methods and errors are those."""

    def __init__(
        self,
        url: str,
        identity: Identity,
        roster: RosterSource,
        policy: Policy,
        *,
        progress: Watcher | None = None,
        patience_s: float = PATIENCE_S,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        lanes: int = LANES,
        transcripts: bool = False,
        surroundings: Surroundings = THIS_MACHINE,
        driver: AsyncDriver | None = None,
    ) -> None:
        self._driver = driver or AsyncDriver(url, verify=verify, cert=cert)
        self._conversations = Conversations(
            identity,
            roster,
            policy,
            progress=progress,
            patience_s=patience_s,
            lanes=lanes,
            transcripts=transcripts,
            surroundings=surroundings,
        )

    async def enrol(self, cohort: str | bytes) -> Quorum:
        """As `Member.enrol`."""
        return await self._driver.run(self._conversations.enrol(cohort))

    async def cohort(self, cohort: str | bytes, after: int | None = None) -> CohortView:
        """As `Member.cohort`."""
        return await self._driver.run(self._conversations.cohort(cohort, after))

    async def contribute(
        self, round_id: str, statistics: Statistics | Maker | None, *, lineage: str = "main"
    ) -> Result:
        """As `Member.contribute`."""
        return await self._driver.run(self._conversations.contribute(round_id, statistics, lineage))

    async def sums(self, result: Result) -> Any:
        """As `Member.sums`."""
        return await self._driver.run(self._conversations.sums(result))

    async def close(self) -> None:
        """As `Member.close`."""
        await self._driver.close()
        self._conversations.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncMember {self._conversations.session.member}>"
