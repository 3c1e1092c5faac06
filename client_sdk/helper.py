"""A mask helper as a process: the SDK's front door for the four servers of a round with helpers."""

from client_sdk.conversations import Blocking, Conversations, RosterSource
from client_sdk.identity import Identity
from client_sdk.member import LANES, PATIENCE_S
from client_sdk.policy import Policy
from client_sdk.progress import Watcher
from client_sdk.surroundings import THIS_MACHINE, Surroundings
from client_sdk.transport import BlockingDriver, ClientCertificate


class Helper(Blocking):
    """One of the four; its arguments are those of `client_sdk.Member`.

    Its identity stands in the roster as a member that is named a helper. Its folder is its memory: restored from a backup it
    could vote twice, so a lost folder is a new identity in a new roster.
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
            surroundings=surroundings,
        )

    def run(self, attempts: int | None = None) -> int:
        """Serve the federation's rounds, going on wherever an earlier process stopped.

        Args:
            attempts: return once so many more have ended for this helper; None for ever.

        Returns:
            How many attempts this helper knows to have ended.

        Raises:
            PeerFault: the roster is not the admin's, or names this helper no more.
            ClientError: see `client_sdk.errors`.
        """
        return self._driver.run(self._conversations.serve(attempts))
