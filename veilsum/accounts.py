"""A member's view of the ledger from the command line."""

from pathlib import Path
from typing import Any

from calibration.privacy import compose
from client_sdk import Identity
from client_sdk.ledger import Account, account
from client_sdk.store import Store
from protocol.errors import Misuse
from protocol.rest import round_name
from veilsum.remote import operator


def account_of(folder: Path, url: str | None, ca: Path | None) -> Account:
    """The ledger of the federation that a member is in; with `url` everybody's rounds too, held against its own chain.

    Raises:
        Misuse: the member has not seen a roster yet, so that nobody knows which federation it is in.
        PeerFault: chain-broken, where the coordinator shows another history than this member knows.
    """
    identity = Identity.load(folder)
    store = Store(identity.folder)
    if url is None:
        return account(store, identity.member, None)
    roster = store.roster()
    if roster is None:
        raise Misuse(
            f"{folder} has taken part in no federation yet: enrol it with `veilsum member join` first"
        )
    with operator(url, ca=ca) as client:
        ledger = client.ledger(roster.federation.hex())
    return account(store, identity.member, ledger)


def as_values(seen: Account) -> dict[str, Any]:
    """What `--json` prints, and the tables show."""
    return {
        "floor": seen.floor,
        "rounds": [
            {
                "round": each.round_id,
                "family": each.family,
                "place": f"{each.sequence}.{each.attempt}",
                "cohort": each.cohort,
                "ended": each.ended,
                "why": each.why,
                "sets": list(each.sets),
                "own": list(each.own),
            }
            for each in seen.rounds
        ],
        "lineages": [
            {
                "lineage": lineage.name,
                "family": lineage.family,
                "spent": lineage.name in seen.spent,
                "mu": compose(mu for _, mu in lineage.charges),
                "versions": [
                    {"version": version.tag.hex(), "rounds": [round_name(c) for c in version.contexts]}
                    for version in lineage.versions
                ],
            }
            for lineage in seen.lineages
        ],
        "groups": [
            {
                "family": group.family,
                "reading": group.reading,
                "size": len(group.members),
                "members": list(group.members),
                "rounds": list(group.rounds),
                "floor": group.floor,
            }
            for group in seen.groups
        ],
        "refused_next": list(seen.refused_next()),
    }
