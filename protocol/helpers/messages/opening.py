"""Helper cards, the manifest that lists them, and the opening of an attempt (helpers H3, H4)."""

from functools import cached_property
from typing import Annotated, ClassVar

from protocol.codec import U32, U64, Digest, Id, Key, Many, Nested, Signature, Struct
from protocol.helpers.messages.base import HELPERS, HelperKind
from protocol.messages.base import Signed
from protocol.messages.opening import Terms
from protocol.tags import Tag, hash_fields


class HelperCard(Signed):
    """A helper's X25519 public key for one attempt, signed by its identity.

    Attributes:
        cohort: names roster and attempt: `cohort_id(roster hash, attempts ended before)`.
        box_key: clients seal their boxes to it; its private half is deleted with the receipt.
        expires_s: Unix time in seconds after which no client may seal to it.
    """

    kind: ClassVar[int] = HelperKind.CARD
    tag: ClassVar[Tag] = Tag.HELPER_CARD

    cohort: Digest
    member: Id
    box_key: Key
    expires_s: U64
    signature: Signature


class HelperManifest(Struct):
    """Who helps in one attempt, and the numbers it lives by.

    Attributes:
        counter: attempts of this mode that the federation has ended before.
        cards: of three helpers or four.
        clients: `n`, members of the roster that are no helpers.
        colluders: `a`, how many clients may collude with the coordinator.
        honest_min: `h_min`, how many honest clients a sum must hide among.
        survivors_min: `n_min`, the fewest survivors an attempt may be certified with.
        cap: most records of one client.
    """

    cohort: Digest
    roster_hash: Digest
    counter: U64
    cards: Annotated[tuple[HelperCard, ...], Many(Nested(HelperCard), HELPERS, ascending=True)]
    clients: U32
    colluders: U32
    honest_min: U32
    survivors_min: U32
    cap: U64

    @cached_property
    def hash(self) -> bytes:
        """Names the manifest in the context."""
        return hash_fields(Tag.HELPER_MANIFEST, self.encode_fields())

    @property
    def floor(self) -> int:
        """`g = a + h_min`: the fewest survivors, and the fewest members of a group in the ledger."""
        return self.colluders + self.honest_min


class HelperOpening(Signed):
    """The coordinator opens an attempt: all that a client needs beside the roster.

    Attributes:
        chain: head of the hash chain over all attempts ended before.
    """

    kind: ClassVar[int] = HelperKind.OPENING
    tag: ClassVar[Tag] = Tag.HELPER_OPENING

    manifest: Annotated[HelperManifest, Nested(HelperManifest)]
    chain: Digest
    terms: Annotated[Terms, Nested(Terms)]
    signature: Signature
