from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.boxes import seal, unseal
from protocol.codec import SecretBytes
from protocol.member import Uploaded
from protocol.merkle import Tree
from protocol.messages import Upload, UploadHeader
from protocol.sealing import commit_row, commitment_tree
from protocol.simulator import Federation


def _resign(federation: Federation, upload: Upload, **changes: Any) -> Upload:
    header = upload.header
    upload = replace(upload, **{name: value for name, value in changes.items() if name in vars(upload)})
    values = {name: getattr(header, name) for name in vars(header) if name != "signature"}
    values |= {
        "chunk_root": Tree.of(upload.chunk_digests).root,
        "commitment_root": commitment_tree(upload.secret_commitments, upload.share_rows).root,
        "box_root": Tree.of(upload.boxes).root,
    }
    values |= {name: value for name, value in changes.items() if name in values}
    return replace(upload, header=UploadHeader.make(federation.keys[header.member], **values))


def _redeal(
    federation: Federation, upload: Upload, edit: Callable[[str, bytes], bytes], *, commit: bool = True
) -> Upload:
    dealer, header = upload.header.member, upload.header
    phase = federation.phases[dealer]
    assert isinstance(phase, Uploaded)
    attempt, pairs = phase.attempt, {pair.peer: pair for pair in phase.ready.pairs}
    rows, boxes, own = list(upload.share_rows), list(upload.boxes), bytes(phase.own_shares)
    for place, decryptor in enumerate(attempt.decryptors):
        if decryptor == dealer:
            shares = own = edit(decryptor, own)
        else:
            key = pairs[decryptor].box_key(dealer, decryptor, attempt.context, header.salt)
            shares = edit(decryptor, unseal(key, boxes[place], attempt.context, dealer))
            boxes[place] = seal(key, shares, attempt.context)
        if commit:
            rows[place] = commit_row(attempt.context, dealer, decryptor, shares)
    dealt = _resign(federation, upload, share_rows=tuple(rows), boxes=tuple(boxes))
    federation.phases[dealer] = replace(phase, uploads=(dealt,), own_shares=SecretBytes(own))
    return dealt


@pytest.fixture
def resign() -> Callable[..., Upload]:
    """A cheating member's upload: with some fields changed, its roots computed anew, and signed by it again."""
    return _resign


@pytest.fixture
def redeal() -> Callable[..., Upload]:
    """A cheating dealer's upload: `edit(decryptor, shares)` says what each decryptor is dealt.

    Its commitments are to those shares, or with `commit=False` to the true ones. The dealer keeps it as its own.
    """
    return _redeal
