"""Pairing: who encapsulates to whom, and what the pairings of a manifest show (wire: Cohorts)."""

from collections.abc import Iterator

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import verify_signature
from veilsum.protocol.merkle import climb_path
from veilsum.protocol.messages import Ciphertexts, Manifest, Pairing, Roster, ShownCiphertext, pairing_digest
from veilsum.protocol.study import Windows

MAX_MANIFESTS = 3
"""Most manifests that are made of the cards of one cohort."""


def lapse_s(windows: Windows) -> int:
    """Return after how many seconds a card's private keys are erased: enrolment, a window for each manifest, and one for the ciphertexts."""
    return windows.enrol + (MAX_MANIFESTS + 1) * windows.answer


def peers_of(manifest: Manifest, member: str) -> tuple[str, ...]:
    """Return everyone that `member` shares keys with, ascending: its neighbours, the decryptors, and of a decryptor all members."""
    if member in manifest.decryptor_set:
        return tuple(other for other in manifest.members if other != member)
    near = {*manifest.graph.neighbours_of(member), *manifest.decryptors}
    return tuple(sorted(near))


def recipients_of(manifest: Manifest, member: str) -> tuple[str, ...]:
    """Return those that `member` encapsulates to, ascending."""
    following = manifest.graph.followers_of(member)
    strangers = manifest.graph.strangers_of(member, manifest.decryptors)
    if member in manifest.decryptor_set:
        strangers = [other for other in strangers if member < other]
    return tuple(sorted([*following, *strangers])) if strangers else following


def senders_to(manifest: Manifest, member: str) -> tuple[str, ...]:
    """Return those that encapsulate to `member`, ascending."""
    own = {*recipients_of(manifest, member)}
    return tuple(other for other in peers_of(manifest, member) if other not in own)


def check_pairing(roster: Roster, manifest: Manifest, pairing: Pairing) -> None:
    """Check a pairing of this manifest, in the order of PAIR-1 to PAIR-4.

    Raises:
        PeerFault: manifest-mismatch, unknown-member, bad-signature or pairing-misshapen.
    """
    member = pairing.member
    if pairing.manifest != manifest.hash:
        raise PeerFault(Cause.MANIFEST_MISMATCH, f"{member}'s pairing is for another manifest", [member])
    if member not in manifest.member_places:
        raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in the cohort", [member])
    pairing.verify(roster.key_of(member), member)
    wanted = len(recipients_of(manifest, member))
    if len(pairing.ciphertexts) != wanted:
        raise PeerFault(
            Cause.PAIRING_MISSHAPEN,
            f"{member}'s pairing has {len(pairing.ciphertexts)} ciphertexts, expected {wanted}",
            [member],
        )


def split_pairing(manifest: Manifest, pairing: Pairing) -> Iterator[tuple[str, ShownCiphertext]]:
    """Yield each ciphertext of a checked pairing as its recipient is shown it, with the recipient."""
    for place, recipient in enumerate(recipients_of(manifest, pairing.member)):
        path = tuple(pairing.tree.path_to(place))
        ciphertext = pairing.ciphertexts[place]
        yield recipient, ShownCiphertext(pairing.member, ciphertext, path, pairing.signature)


def check_ciphertexts(roster: Roster, manifest: Manifest, member: str, ciphertexts: Ciphertexts) -> None:
    """Check what one member is shown of the others' pairings (CIPHER-1 to CIPHER-3).

    Raises:
        PeerFault: manifest-mismatch or bad-signature, which name the coordinator: it admitted all of them.
    """
    if ciphertexts.manifest != manifest.hash:
        raise PeerFault(Cause.MANIFEST_MISMATCH, "the ciphertexts are for another manifest", ["coordinator"])
    if tuple(shown.member for shown in ciphertexts.shown) != senders_to(manifest, member):
        raise PeerFault(
            Cause.MANIFEST_MISMATCH,
            "the ciphertexts shown are not of exactly the members that encapsulate to this one",
            ["coordinator"],
        )
    for shown in ciphertexts.shown:
        recipients = recipients_of(manifest, shown.member)
        root = climb_path(shown.ciphertext, recipients.index(member), len(recipients), shown.path)
        digest = pairing_digest(manifest.hash, shown.member, root or b"")
        verify_signature(roster.key_of(shown.member), shown.signature, digest, "coordinator")
