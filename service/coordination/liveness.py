"""When each member was last heard from: by its admitted signed requests, long polls included.

Nothing is stored for this. Each signed request's nonce is kept with the time from which it is refused by its age
(service/storage/nonces.py): its signature's own expiry, plus `skew_s` by which the signer's clock may be off.

For how long a request was signed is not stored. Each is read as signed for `LIFETIME_S`, as the SDK and `veilsum` sign, which gives the
time of signing by the signer's clock. The request came at the earliest `skew_s` before that, where the clock was ahead: a silent member may
count as heard from for that much longer, or for as much as it signs for longer, up to `MAX_LIFETIME_S`. It came at the latest
`LIFETIME_S + skew_s` after it, where it was long under way or the clock was behind: by so much may a member count as silent too soon.
Reading each as signed for the longest lifetime would never count a silent member as heard from, and would show members that wait as the
SDK does as silent for five minutes.
"""

from collections.abc import Collection

from service.http.problems import terms_refused
from service.storage.database import Database
from service.storage.nonces import newest, signer_of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.request_signature import LIFETIME_S
from veilsum.protocol.rest import DecryptorsView, join_names

LOOK_BACK_S = 600.0
"""How far a preflight looks back unless the request says otherwise."""
_REMEDY = "Start their `veilsum member join`"


async def signed_s(
    database: Database, federation: str, members: Collection[str], skew_s: float
) -> dict[str, float]:
    """Return when each member last signed an admitted request, in Unix time, without members that never did.

    `skew_s` is what the gate adds to a signature's expiry.
    """
    names = {signer_of(federation, member): member for member in members}
    found = await newest(database, names)
    return {names[signer]: expires_s - skew_s - LIFETIME_S for signer, expires_s in found.items()}


async def decryptors(
    database: Database, attempt: Attempt, within_s: float, now_s: float, skew_s: float
) -> DecryptorsView:
    """Tell which of an attempt's decryptors signed a request within the last `within_s` seconds."""
    last_s = await signed_s(database, attempt.roster.federation.hex(), attempt.decryptors, skew_s)
    silent = tuple(
        member for member in attempt.decryptors if member not in last_s or last_s[member] < now_s - within_s
    )
    return DecryptorsView(
        decryptors=len(attempt.decryptors),
        needed=attempt.quorum.threshold,
        within_s=within_s,
        heard=len(attempt.decryptors) - len(silent),
        silent=silent,
    )


async def check(
    database: Database,
    attempt: Attempt,
    members: Collection[str],
    within_s: float,
    now_s: float,
    skew_s: float,
) -> None:
    """Refuse a round for which too few decryptors or members were heard from (terms-refused).

    A run's first step needs as many more members as its study lets drop out afterwards.

    `members` may be in the sum. They were heard from if it was within `within_s` seconds; `skew_s` is what the gate adds to a signature's
    expiry.
    """
    found = await decryptors(database, attempt, within_s, now_s, skew_s)
    if found.heard < found.needed:
        raise terms_refused(f"{found.sentence}. {_REMEDY}")
    needed, withhold = attempt.survivors_min, attempt.question.withhold
    if withhold is not None and attempt.spec.indicator:
        needed = max(needed, min(len(members), attempt.quorum.survivors_min + withhold.margin))
    elif withhold is not None and not attempt.repeats:
        needed = max(needed, len(members) - withhold.margin)
    last_s = await signed_s(database, attempt.roster.federation.hex(), members, skew_s)
    silent = [member for member in members if last_s.get(member, -1.0) < now_s - within_s]
    heard = len(members) - len(silent)
    if heard < needed:
        raise terms_refused(
            f"{heard} of {len(members)} members heard from within {within_s:g} s, {needed} needed; not: {join_names(silent)}. {_REMEDY}"
        )
