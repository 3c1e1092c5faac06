"""Plays in which a member must erase: what its stored state holds before the last step, and no more after it (LAPSE)."""

from collections.abc import Callable, Iterator
from typing import Any

from assurance.attacks.plays import VICTIM, freezing, tell
from assurance.attacks.plays_of_pairing import collected
from assurance.attacks.scripts import Recorder, script_of
from tests.support.pairing import ciphertexts_for, let_pair
from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import Revealing
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.member.attempting import Attempting, Checked
from veilsum.protocol.member.enrolled import Paired

Json = dict[str, Any]
MEMBERS = 3


def lapsed() -> MemberPhase:
    """No ciphertexts come."""
    federation, enrolling = collected(MEMBERS)
    let_pair(federation, enrolling, VICTIM)
    paired = of(Paired, federation.phases[VICTIM])
    return paired.erase_expired(paired.lapses_s)


def formed() -> MemberPhase:
    """All pair, and the keys of the pairs are stored."""
    federation, enrolling = collected(MEMBERS)
    let_pair(federation, enrolling)
    tell(federation, VICTIM, ciphertexts_for(federation, VICTIM))
    return federation.phases[VICTIM]


def closed() -> MemberPhase:
    """A certificate closes the sequence."""
    federation = Federation(MEMBERS)
    certificate = federation.reach(Revealing).request_for(VICTIM)
    assert certificate
    tell(federation, VICTIM, certificate)
    return federation.phases[VICTIM]


def overdue() -> MemberPhase:
    """A decryptor holds shares when the latest end passes."""
    federation, phase = freezing(MEMBERS)
    return of(Checked, federation.phases[VICTIM]).erase_expired(phase.attempt.terms.latest_end_s)


PLAYS: tuple[tuple[str, str, Callable[[], MemberPhase]], ...] = (
    ("private keys and encapsulated secrets of a cohort that is not formed in time", "LAPSE-1", lapsed),
    ("shares and keys of an attempt, at its latest end", "LAPSE-2", overdue),
    ("private keys and encapsulated secrets, once the keys of the pairs are stored", "LAPSE-3", formed),
    ("keys of a sequence that a certificate closes", "LAPSE-3", closed),
)


def exported(said: dict[str, int]) -> Iterator[Json]:
    """Yield each play as a script that ends in `gone`: secrets that the state no longer holds."""
    for name, rule, play in PLAYS:
        recorder = Recorder()
        with recorder.running():
            after = play()
        steps = recorder.steps_to(after)
        before, script = steps[-1].before, script_of(steps, said)
        gone = secrets_in(before, script)
        assert all(each in before.to_bytes() and each not in after.to_bytes() for each in gone), name
        yield {"name": name, "rule": rule, "ends": "erased", "gone": [each.hex() for each in gone], **script}


def secrets_in(phase: MemberPhase, script: Json) -> list[bytes]:
    """Return the secrets that a member holds in this phase."""
    if isinstance(phase, Paired):
        encapsulated = next(each["secrets"] for each in script["steps"] if "secrets" in each)
        texts = (script["x25519_private"], script["mlkem_seed"], *encapsulated.values())
        return [bytes.fromhex(text) for text in texts]
    attempting = of(Attempting, phase)
    keys = [bytes(pair.key) for pair in (*attempting.ready.masks, *attempting.ready.boxes)]
    if not isinstance(phase, Checked):
        return keys
    return [*keys, bytes(phase.own_shares), *(bytes(each.shares) for each in phase.opened)]
