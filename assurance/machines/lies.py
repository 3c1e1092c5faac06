"""Lies: what a lying member sends to an honest coordinator in place of its true message."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.support.forging import again, other_secrets, redeal, reupload
from tests.support.simulator import Federation
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    Erased,
    Message,
    Pairing,
    Receipt,
    Refusal,
    Reveal,
    Upload,
    Vote,
    void_hash,
)

Lies = tuple[Message, ...]
Liar = Callable[[Federation, Message, Random], Lies]


def silence(_federation: Federation, _message: Message, _random: Random) -> Lies:
    return ()


def twice(_federation: Federation, message: Message, _random: Random) -> Lies:
    return message, message


def false_ciphertexts(federation: Federation, pairing: Message, random: Random) -> Lies:
    """Send some members ciphertexts that hold another secret: their keys differ from the liar's."""
    assert isinstance(pairing, Pairing)
    ciphertexts = list(pairing.ciphertexts)
    for place in random.sample(range(len(ciphertexts)), random.randint(1, len(ciphertexts))):
        ciphertexts[place] = random.choice((random.randbytes(len(ciphertexts[place])), ciphertexts[0]))
    return (again(pairing, federation.keys[pairing.member], ciphertexts=tuple(ciphertexts)),)


def second_pairing(federation: Federation, pairing: Message, random: Random) -> Lies:
    """Send two pairings, in either order."""
    both = [pairing, *false_ciphertexts(federation, pairing, random)]
    random.shuffle(both)
    return tuple(both)


def misshapen_pairing(federation: Federation, pairing: Message, random: Random) -> Lies:
    """Send a ciphertext too few or too many."""
    assert isinstance(pairing, Pairing)
    sent = pairing.ciphertexts
    ciphertexts = random.choice((sent[1:], (*sent, sent[0])))
    return (again(pairing, federation.keys[pairing.member], ciphertexts=ciphertexts),)


def pairing_of_another_manifest(federation: Federation, pairing: Message, random: Random) -> Lies:
    """Pair under a manifest that nobody made."""
    assert isinstance(pairing, Pairing)
    return (again(pairing, federation.keys[pairing.member], manifest=random.randbytes(32)),)


def false_edges(federation: Federation, upload: Message, random: Random) -> Lies:
    """Commit to other mask seeds than some neighbours do."""
    assert isinstance(upload, Upload)
    commitments = list(upload.secret_commitments)
    for index in random.sample(range(1, len(commitments)), random.randint(1, len(commitments) - 1)):
        commitments[index] = random.randbytes(16)
    return (reupload(federation, upload, secret_commitments=tuple(commitments)),)


def false_boxes(federation: Federation, upload: Message, random: Random) -> Lies:
    """Seal boxes that some decryptors can't open."""
    assert isinstance(upload, Upload)
    share = random.random()
    boxes = tuple(box if random.random() < share else random.randbytes(len(box)) for box in upload.boxes)
    return (reupload(federation, upload, boxes=boxes),)


def false_deal(federation: Federation, upload: Message, random: Random) -> Lies:
    """Deal shares of other secrets, with matching commitments."""
    assert isinstance(upload, Upload)
    attempt = federation.phase.attempt
    indices = random.sample(range(1 + attempt.manifest.degree), random.randint(1, 3))
    return (redeal(federation, upload, other_secrets(attempt, *indices)),)


def mixed_deal(federation: Federation, upload: Message, random: Random) -> Lies:
    """Deal some decryptors shares of one secret, and others shares of another."""
    assert isinstance(upload, Upload)
    attempt = federation.phase.attempt
    other = other_secrets(attempt)
    chosen = {decryptor for decryptor in attempt.decryptors if random.random() < 0.5}
    return (redeal(federation, upload, lambda d, shares: other(d, shares) if d in chosen else shares),)


def uncommitted_deal(federation: Federation, upload: Message, _random: Random) -> Lies:
    """Deal shares that don't match their commitments."""
    assert isinstance(upload, Upload)
    return (redeal(federation, upload, other_secrets(federation.phase.attempt), commit=False),)


def second_upload(federation: Federation, upload: Message, random: Random) -> Lies:
    """Announce two uploads."""
    assert isinstance(upload, Upload)
    return upload, *false_edges(federation, upload, random)


def misshapen(_federation: Federation, upload: Message, _random: Random) -> Lies:
    """Leave out a chunk."""
    assert isinstance(upload, Upload)
    return (replace(upload, chunk_digests=upload.chunk_digests[1:]),)


def complaints(federation: Federation, receipt: Message, random: Random) -> Lies:
    """Complain about good boxes."""
    assert isinstance(receipt, Receipt)
    share = random.random()
    accused = {dealer for dealer in receipt.dealers if random.random() < share}
    key = federation.keys[receipt.member]
    dealers = tuple(dealer for dealer in receipt.dealers if dealer not in accused)
    return (
        again(receipt, key, dealers=dealers, complaints=tuple(sorted(accused.union(receipt.complaints)))),
    )


def short_receipt(federation: Federation, receipt: Message, _random: Random) -> Lies:
    """Leave a dealer out of a receipt."""
    assert isinstance(receipt, Receipt)
    return (again(receipt, federation.keys[receipt.member], dealers=receipt.dealers[1:]),)


def second_receipt(federation: Federation, receipt: Message, random: Random) -> Lies:
    """Send two receipts."""
    return receipt, *complaints(federation, receipt, random)


def other_vote(federation: Federation, vote: Message, random: Random) -> Lies:
    """Sign another outcome."""
    assert isinstance(vote, Vote)
    outcome = random.choice((random.randbytes(32), void_hash(vote.context, "cancelled")))
    return (again(vote, federation.keys[vote.member], outcome=outcome),)


def second_vote(federation: Federation, vote: Message, random: Random) -> Lies:
    """Sign two outcomes, in either order."""
    both = [vote, *other_vote(federation, vote, random)]
    random.shuffle(both)
    return tuple(both)


def refusal(federation: Federation, vote: Message, random: Random) -> Lies:
    """Refuse without a reason, or with one that blames others."""
    assert isinstance(vote, Vote)
    cause = random.choice(("policy-refused", "survivors-invalid", "repeat-mismatch", "none", "share-invalid"))
    return (
        Refusal.make_signed(
            federation.keys[vote.member], context=vote.context, member=vote.member, cause=cause
        ),
    )


def refusal_and_vote(federation: Federation, vote: Message, random: Random) -> Lies:
    """Refuse and sign, in either order."""
    both = [vote, *refusal(federation, vote, random)]
    random.shuffle(both)
    return tuple(both)


def false_share(federation: Federation, reveal: Message, random: Random) -> Lies:
    """Reveal a wrong share of one secret."""
    assert isinstance(reveal, Reveal)
    runs = list(reveal.runs)
    at = random.randrange(len(runs))
    runs[at] = bytes([runs[at][0] ^ 1]) + runs[at][1:]
    return (again(reveal, federation.keys[reveal.member], runs=tuple(runs)),)


def short_reveal(federation: Federation, reveal: Message, random: Random) -> Lies:
    """Leave out a run, or a share of one."""
    assert isinstance(reveal, Reveal)
    runs = random.choice((reveal.runs[1:], (reveal.runs[0][36:], *reveal.runs[1:])))
    return (again(reveal, federation.keys[reveal.member], runs=runs),)


def other_evictions(federation: Federation, reveal: Message, random: Random) -> Lies:
    """Claim that other members are evicted, or fewer."""
    assert isinstance(reveal, Reveal)
    evicted = tuple(sorted(random.sample(federation.ids, random.randint(0, 2))))
    return (again(reveal, federation.keys[reveal.member], evicted=evicted),)


def other_report(federation: Federation, report: Message, random: Random) -> Lies:
    """Report another reveal than was sent, or none."""
    assert isinstance(report, Erased)
    return (again(report, federation.keys[report.member], revealed=random.choice((bytes(32), b"\x66" * 32))),)


LIES: dict[type[Message], tuple[Liar, ...]] = {
    Pairing: (
        false_ciphertexts,
        false_ciphertexts,
        second_pairing,
        misshapen_pairing,
        pairing_of_another_manifest,
        silence,
        twice,
    ),
    Upload: (
        false_edges,
        false_boxes,
        false_deal,
        mixed_deal,
        uncommitted_deal,
        second_upload,
        misshapen,
        silence,
        twice,
    ),
    Receipt: (complaints, short_receipt, second_receipt, silence, twice),
    Vote: (other_vote, second_vote, refusal, refusal_and_vote, silence, twice),
    Reveal: (false_share, short_reveal, other_evictions, silence, twice),
    Erased: (other_report, silence, twice),
}


def lie(federation: Federation, message: Message, random: Random) -> tuple[str, Lies]:
    """Replace a message by a random lie, and return the lie's name. Messages without a known lie stay unchanged."""
    liars = LIES.get(type(message))
    if liars is None:
        return "truth", (message,)
    liar = random.choice(liars)
    try:
        return liar.__name__.replace("_", " "), liar(federation, message, random)
    except PeerFault:  # an upload whose boxes the liar spoilt can't be dealt again
        return "truth", (message,)
