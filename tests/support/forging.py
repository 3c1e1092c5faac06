"""Forgeries of a cheat: messages changed and signed again, and uploads with false shares."""

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from hashlib import sha512
from typing import Any, Protocol, TypeVar

from tests.support.simulator import Federation, SeededRandom, Tamper
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.codec import SecretBytes, Struct
from veilsum.protocol.coordinator import Checking
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import MemberPhase, Uploaded
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Certificate,
    Erased,
    Erasure,
    Lost,
    Message,
    Receipt,
    Refusal,
    Survivor,
    Upload,
    UploadHeader,
    Vote,
)
from veilsum.protocol.messages.base import Signed
from veilsum.protocol.sealing import commit_row, commitment_tree, seal_box, unseal_box
from veilsum.protocol.shamir import share_secrets

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message | None)
SignedMessage = TypeVar("SignedMessage", bound=Signed | UploadHeader)


class Dealers(Protocol):
    """Members' phases and keys, for example of the simulator."""

    @property
    def phases(self) -> MutableMapping[str, MemberPhase]: ...
    @property
    def keys(self) -> Mapping[str, SigningKey]: ...


Edit = Callable[[str, bytes], bytes]
"""Returns the bytes that a false dealer deals to a decryptor instead of its shares."""


ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493


def tensor(dtype: str, shape: Sequence[int], size: int) -> bytes:
    """Make a safetensors file of zeros, possibly of a type or shape that numpy lacks."""
    described = {"dtype": dtype, "shape": list(shape), "data_offsets": [0, size]}
    head = json.dumps({"weights": described, "sum": described | {"data_offsets": [size, 2 * size]}}).encode()
    return len(head).to_bytes(8, "little") + head + bytes(2 * size)


def changing(form: type[M], change: Callable[[M], R], *senders: str) -> Callable[[str, Message], R | Message]:
    """Change messages of one type from these senders."""
    return lambda sender, message: (
        change(message) if sender in senders and isinstance(message, form) else message
    )


def swallowing(form: type[Message], *senders: str) -> Tamper:
    """Swallow messages of one type from these senders."""
    return changing(form, lambda _: None, *senders)


def in_turn(*tampers: Tamper) -> Tamper:
    """Change messages by each of these in turn, until one swallows them."""

    def tamper(sender: str, message: Message | None) -> Message | None:
        for each in tampers:
            message = message and each(sender, message)
        return message

    return tamper


def answering(federation: Federation, member: str, form: type[Any], **changes: Any) -> Tamper:
    """Change fields in a member's answers of one type, and sign them again."""
    return changing(form, lambda message: again(message, federation.keys[member], **changes), member)


def unsigned(message: Struct) -> dict[str, Any]:
    """Return a message's fields without its signature."""
    return {name: getattr(message, name) for name, _ in message.codecs.items() if name != "signature"}


def again(message: SignedMessage, key: SigningKey, **changes: Any) -> SignedMessage:
    """Change some fields of a message, and sign it with `key`."""
    form: Any = type(message)
    made: SignedMessage = form.make_signed(key, **{**unsigned(message), **changes})
    return made


def signed_otherwise(message: SignedMessage, key: SigningKey) -> SignedMessage:
    """Return a message with another valid signature of the same key: a signer may choose its nonce."""
    nonce = SigningKey(b"\x4e" * 32)
    k = int.from_bytes(sha512(nonce.public + key.public + message.digest).digest(), "little")
    s = (_scalar(nonce) + k * _scalar(key)) % ED25519_ORDER
    return replace(message, signature=nonce.public + s.to_bytes(32, "little"))


def mlkem_key_above_q(mlkem_key: bytes) -> bytes:
    """Return an ML-KEM key whose first coefficient is 4,095, above the modulus of 3,329."""
    return bytes((0xFF, mlkem_key[1] | 0x0F)) + mlkem_key[2:]


def _scalar(key: SigningKey) -> int:
    """Return the secret scalar of a key (RFC 8032 §5.1.5)."""
    low = int.from_bytes(sha512(key.seed).digest()[:32], "little")
    return low & ((1 << 254) - 8) | 1 << 254


def resign(federation: Dealers, upload: Upload, **changes: Any) -> Upload:
    """Change fields of an upload, recompute its roots, and sign it as its member."""
    upload = replace(upload, **{name: value for name, value in changes.items() if name in vars(upload)})
    values = unsigned(upload.header) | {
        "chunk_root": Tree(upload.chunk_digests).root,
        "commitment_root": commitment_tree(upload.secret_commitments, upload.share_rows).root,
        "box_root": Tree(upload.boxes).root,
    }
    values |= {name: value for name, value in changes.items() if name in values}
    return replace(upload, header=UploadHeader.make_signed(federation.keys[upload.header.member], **values))


def reupload(federation: Federation, upload: Upload, **changes: Any) -> Upload:
    """`resign` an upload, and have the member adopt the new one."""
    other = resign(federation, upload, **changes)
    phase = federation.phases[upload.header.member]
    assert isinstance(phase, Uploaded)
    federation.phases[upload.header.member] = replace(phase, uploads=(other,))
    return other


def redeal(federation: Dealers, upload: Upload, edit: Edit, *, commit: bool = True) -> Upload:
    """Deal false shares: `edit(decryptor, shares)` returns what each decryptor gets.

    The commitments match those shares, or with `commit=False` the true ones. The dealer adopts the upload.
    """
    dealer, header = upload.header.member, upload.header
    phase = federation.phases[dealer]
    assert isinstance(phase, Uploaded)
    attempt, pairs = phase.attempt, {pair.peer: pair for pair in phase.ready.boxes}
    rows, boxes, own = list(upload.share_rows), list(upload.boxes), bytes(phase.own_shares)
    for place, decryptor in enumerate(attempt.decryptors):
        if decryptor == dealer:
            shares = own = edit(decryptor, own)
        else:
            key = pairs[decryptor].box_key(dealer, decryptor, attempt.context, header.salt)
            shares = edit(decryptor, unseal_box(key, boxes[place], attempt.context, dealer))
            boxes[place] = seal_box(key, shares, attempt.context)
        if commit:
            rows[place] = commit_row(attempt.context, dealer, decryptor, shares)
    dealt = resign(federation, upload, share_rows=tuple(rows), boxes=tuple(boxes))
    federation.phases[dealer] = replace(phase, uploads=(dealt,), own_shares=SecretBytes(own))
    return dealt


def other_secrets(attempt: Attempt, *indices: int) -> Edit:
    """Deal shares of other secrets, for some indices or all: consistent and canonical, but not the committed ones."""
    secrets = 1 + attempt.manifest.degree
    dealt = share_secrets(
        [b"\x01" * 32] * secrets, attempt.quorum.threshold, len(attempt.decryptors), SeededRandom(7)
    )

    def edit(decryptor: str, shares: bytes) -> bytes:
        false = dealt[attempt.decryptor_place[decryptor]].tobytes()
        return b"".join(
            (false if not indices or index in indices else shares)[36 * index : 36 * index + 36]
            for index in range(secrets)
        )

    return edit


def for_some(*holders: str) -> Callable[[Attempt], Edit]:
    """Deal shares of other secrets to these decryptors alone."""

    def edit_of(attempt: Attempt) -> Edit:
        false = other_secrets(attempt)
        return lambda who, shares: false(who, shares) if who in holders else shares

    return edit_of


def false_dealers(
    federation: Federation, edits: Mapping[str, Callable[[Attempt], Edit]], *, commit: bool = True
) -> None:
    """Have these members deal false shares from now on, by `redeal`."""

    def deal(upload: Upload) -> Upload:
        edit = edits[upload.header.member](federation.phase.attempt)
        return redeal(federation, upload, edit, commit=commit)

    federation.tamper = changing(Upload, deal, *edits)


def complaining(
    federation: Dealers, complaints: Mapping[str, tuple[str, ...]]
) -> Callable[[str, Message], Message]:
    """Have decryptors complain about true boxes of these dealers."""

    def complain(receipt: Receipt) -> Receipt:
        accused = complaints[receipt.member]
        dealers = tuple(dealer for dealer in receipt.dealers if dealer not in accused)
        return again(receipt, federation.keys[receipt.member], dealers=dealers, complaints=accused)

    return changing(Receipt, complain, *complaints)


def refusing(federation: Dealers, causes: Mapping[str, str]) -> Callable[[str, Message], Message]:
    """Have these decryptors refuse whatever they are asked to sign."""

    def refuse(vote: Vote) -> Refusal:
        return Refusal.make_signed(
            federation.keys[vote.member], context=vote.context, member=vote.member, cause=causes[vote.member]
        )

    return changing(Vote, refuse, *causes)


def certificate(federation: Federation, survivors: tuple[Survivor, ...]) -> Certificate:
    """Make a certificate of these survivors, signed by all decryptors."""
    attempt = federation.phase.attempt
    unvoted = Certificate(attempt.context, survivors, "none", ())
    votes = tuple(
        Vote.make_signed(federation.keys[m], context=attempt.context, member=m, outcome=unvoted.outcome)
        for m in attempt.decryptors
    )
    return replace(unvoted, votes=votes)


def erased(federation: Federation, member: str, **changes: Any) -> Erased:
    """Make a decryptor's report that it revealed nothing."""
    values = {
        "context": federation.phase.attempt.context,
        "member": member,
        "revealed": NOTHING_REVEALED,
        **changes,
    }
    return Erased.make_signed(federation.keys[member], **values)


def erasure(federation: Federation, *members: str) -> Erasure:
    """Make these decryptors' reports that they revealed nothing."""
    reports = tuple(erased(federation, member) for member in sorted(members))
    return Erasure(federation.phase.attempt.context, reports)


def lost(federation: Federation, **changes: Any) -> Lost:
    """Make the admin's Lost message."""
    return Lost.make_signed(federation.admin, **{"context": federation.phase.attempt.context, **changes})


def receipts_of(federation: Federation, phase: Checking) -> dict[str, Receipt]:
    """Return each decryptor's receipt for its boxes."""
    receipts = {}
    for member in federation.ids:
        delivered = phase.request_for(member)
        assert delivered is not None
        _, (receipt,) = federation.ask(member, delivered)
        assert isinstance(receipt, Receipt)
        receipts[member] = receipt
    return receipts
