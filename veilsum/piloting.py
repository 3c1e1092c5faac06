"""A pilot: every key of a consortium in one folder of one machine, so that a first round takes a command and not an afternoon.

Whoever runs it holds the admin's key and all members' keys, so nobody is protected from anybody. In a consortium each makes
their own (docs/howto), and the rest is the same.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from client_sdk import Identity
from client_sdk.operator import Operator
from protocol.errors import Misuse
from protocol.identity import SigningKey
from protocol.rest import CohortRequest, CohortView
from veilsum.admin import Draft, create_admin, load_admin, revised
from veilsum.pinning import pin

RECORDS_CAP = 65_535
NOTHING = hashlib.sha256(b"").hexdigest()
"""The extractor's digest where nobody has named one."""


@dataclass(frozen=True)
class Pilot:
    """Who takes part, in a folder that holds `admin/`, `roster.json` and a folder for each member.

    Attributes:
        folder: is made; whatever it holds of an earlier pilot is used again.
        members: their ids.
        extractor: digest of what made their features, 64 hexadecimal digits.
        withhold: whether classes that few members hold stay out of the sum.
    """

    folder: Path
    members: tuple[str, ...]
    extractor: str
    withhold: bool

    def __post_init__(self) -> None:
        if len(set(self.members)) < 3:
            raise Misuse("a sum hides nobody among fewer than three: pass --member three times at least")

    def start(self, client: Operator) -> CohortView:
        """Make what is missing of the keys, sign and publish the roster, and open a cohort where none stands.

        Raises:
            Misuse, IdentityError: what the folder holds is damaged, or not of this pilot.
            PeerFault: what the coordinator refuses.
        """
        admin = _admin(self.folder / "admin")
        identities = [_identity(self.folder / member, member) for member in self.members]
        for identity in identities:
            pin(identity.folder, admin.public.hex())
        path = self.folder / "roster.json"
        draft = revised(
            Draft.load(path) if path.exists() else None,
            coordinator=client.coordinator().public_key,
            members=[f"{each.member}={each.public.hex()}" for each in identities],
            remove=(),
            extractors=[self.extractor],
            decryptors=(),
            readers=(),
            withhold=self.withhold,
        )
        draft.save(path)
        roster = draft.sign(admin)
        known = client.publish(roster)
        newest = client.cohort(known.cohorts[-1]) if known.cohorts else None
        if newest is not None and newest.state != "failed" and set(newest.members) == set(draft.members):
            return newest
        return client.open_cohort(known.federation, CohortRequest(records_cap=RECORDS_CAP))


def _admin(folder: Path) -> SigningKey:
    return load_admin(folder) if folder.exists() else create_admin(folder)


def _identity(folder: Path, member: str) -> Identity:
    return Identity.load(folder) if folder.exists() else Identity.create(folder, member)
