"""Which decryptors were heard from lately: those who will have to certify a round are there before it opens, or are not.

Nothing is kept for it. Of every signed request that is let in, and so of every long poll of a member that waits, the nonce is kept with
when it expires (service/access/nonces.py): its signature's own expiry and `skew_s`, by which the signer's clock may be off.

For how long it was signed is not kept. Each is read as signed for `LIFETIME_S`, as the SDK and `veilsum` do: what is said here is then when
that was, by the signer's clock. The request came `skew_s` before that at the earliest, where the clock was ahead, so that a silent member
may count as heard from for so much longer, and no more; whoever signs for longer, up to `MAX_LIFETIME_S`, adds the difference. It came
`LIFETIME_S + skew_s` after that at the latest, where it was long under way or the clock was behind: by so much may somebody count as silent
too soon. To read each as signed for the longest that is taken would never count a silent member as heard from, and would have those who
wait as the SDK does be silent for five minutes.
"""

from collections.abc import Collection

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.preflight import DecryptorsView
from protocol.request_signature import LIFETIME_S
from service.access.nonces import newest, signer_of
from service.problems import named
from service.storage.database import Database

LOOK_BACK_S = 600.0
"""How far a preflight looks back unless the request says."""


async def signed_s(
    database: Database, federation: str, members: Collection[str], skew_s: float
) -> dict[str, float]:
    """When each member last signed a request that was let in, in Unix time, as exact as the module says; without those who never did.

    Args:
        database: of the nonces.
        federation: the members', in hexadecimal.
        members: ids.
        skew_s: what the gate adds to a signature's expiry.
    """
    names = {signer_of(federation, member): member for member in members}
    found = await newest(database, names)
    return {names[signer]: expires_s - skew_s - LIFETIME_S for signer, expires_s in found.items()}


async def decryptors(
    database: Database, attempt: Attempt, within_s: float, now_s: float, skew_s: float
) -> DecryptorsView:
    """The attempt's decryptors, by whether they signed a request within the last `within_s` seconds."""
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


async def check(database: Database, attempt: Attempt, within_s: float, now_s: float, skew_s: float) -> None:
    """Refuse a round for which too few were heard from (terms-refused): decryptors for its end, and members for its sum.

    A run's first step needs as many more members as its study lets be missing afterwards.
    """
    found = await decryptors(database, attempt, within_s, now_s, skew_s)
    if found.heard < found.needed:
        raise _refused(found.sentence)
    spec, needed = attempt.spec, attempt.quorum.survivors_min
    if spec.question.withhold is not None and spec.indicator:
        needed = min(len(attempt.members), needed + spec.question.withhold.margin)
    last_s = await signed_s(database, attempt.roster.federation.hex(), attempt.members, skew_s)
    silent = [member for member in attempt.members if last_s.get(member, -1.0) < now_s - within_s]
    heard = len(attempt.members) - len(silent)
    if heard < needed:
        raise _refused(
            f"{heard} of {len(attempt.members)} members heard from within {within_s:g} s, {needed} needed; not: {named(silent)}"
        )


def _refused(sentence: str) -> PeerFault:
    return PeerFault(
        Cause.TERMS_REFUSED,
        f"{sentence}: start their `veilsum member join`, or leave heard_within_s out",
    )
