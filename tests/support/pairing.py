"""A cohort of the simulator between its cards and its keys, one message at a time."""

from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.member import Paired
from veilsum.protocol.messages import Ciphertexts, Enrolment, Manifest, Pairing, ShownCiphertext
from veilsum.protocol.pairing import senders_to, split_pairing


def enrolments_of(enrolling: Enrolling) -> tuple[Enrolment, ...]:
    """Return what was sent for a cohort, in ascending order of members."""
    return tuple(
        Enrolment(enrolling.cards[member], enrolling.mlkem_keys[member]) for member in sorted(enrolling.cards)
    )


def let_pair(
    federation: Federation, enrolling: Enrolling, *members: str, manifest: Manifest | None = None
) -> Manifest:
    """Show a manifest's cards to these members, or to all, and let them pair."""
    shown = manifest or enrolling.make_manifest()
    for member in members or shown.members:
        federation.phases[member], _ = federation.ask(member, enrolling.cards_for(shown, member))
    return shown


def pairing_of(federation: Federation, member: str) -> Pairing:
    """Return what a member that has paired sent."""
    return of(Paired, federation.phases[member]).pairing


def ciphertexts_for(federation: Federation, member: str) -> Ciphertexts:
    """Return what a member is shown once all have paired."""
    manifest = of(Paired, federation.phases[member]).manifest
    return Ciphertexts(
        manifest.hash,
        tuple(
            ciphertext_of(manifest, pairing_of(federation, sender), member)
            for sender in senders_to(manifest, member)
        ),
    )


def ciphertext_of(manifest: Manifest, pairing: Pairing, recipient: str) -> ShownCiphertext:
    """Return a pairing's ciphertext for one member, as it is shown to that member."""
    return dict(split_pairing(manifest, pairing))[recipient]
