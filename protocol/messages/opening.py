"""The terms of a round and the opening of an attempt (protocol §4.3)."""

from enum import StrEnum
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import (
    U8,
    U32,
    U64,
    Bytes,
    Digest,
    Float,
    Id,
    Key,
    Many,
    Name,
    Nested,
    Shared,
    Signature,
    Struct,
    Text,
    UInt,
)
from protocol.errors import PeerFault
from protocol.messages.base import MAX_MEMBERS, Kind, Signed
from protocol.messages.upload import MAX_CHUNKS
from protocol.tags import Tag, hash_fields

MAX_ATTEMPTS = 8
MAX_LINKS = 1 << 16
MAX_ELEMENTS = 1 << 32
MAX_CLASSES = 1 << 16
MAX_CHUNK_ELEMENTS = 1 << 22


NO_INDICATOR = bytes(32)


class Family(StrEnum):
    """Rounds whose sums can be combined; the ledger keeps one account a family."""

    EXACT = "exact"
    NOISY = "noisy"
    INDICATOR = "indicator"


class Terms(Struct):
    """What all members of a round sum, and how; its hash stands in the context.

    Attributes:
        statistic: the vector's meaning, for example "ffc".
        layout: canonical bytes that name the vector's blocks; opaque here.
        elements: length of the vector.
        ring_bits: width b of the ring.
        lattice: how real numbers become integers, "sums" or "features".
        lattice_bits: that lattice's scale.
        chunk_elements: elements in a chunk, a multiple of 8; the last chunk may be shorter.
        records_max: N_max, most records in the sum; headroom is proved for it.
        extractor: digest of the feature extractor and its preprocessing.
        ridges: the ridge parameters tried; empty leaves the grid to the solver's rule.
        noise: differential-privacy terms; empty for an exact sum.
        indicator: context of the indicator round whose counts decide what is withheld; zero for none (protocol §9).
        margin: `r`, how many of the indicator's survivors may be missing.
        withheld: classes left out of the statistics.
        evicted: whom the indicator round certified and then proved false: it did not count them.
        latest_end_s: Unix time in seconds after which every key of the round is erased.
    """

    statistic: Id
    layout: Annotated[bytes, Bytes(1 << 16)]
    elements: U64
    ring_bits: U8
    lattice: Id
    lattice_bits: U8
    chunk_elements: U32
    records_max: U64
    extractor: Digest
    ridges: Annotated[tuple[float, ...], Many(Float(), 4096)]
    noise: Annotated[bytes, Bytes(1 << 12)]
    indicator: Digest
    margin: U32
    withheld: Annotated[tuple[int, ...], Many(UInt(4), 1 << 16, ascending=True)]
    evicted: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    latest_end_s: U64

    def validate(self) -> None:
        """Refuse widths, lengths and chunk sizes outside their domains."""
        for holds, what in (
            (8 <= self.ring_bits <= 64, f"a ring of {self.ring_bits} bits: 8 to 64"),
            (1 <= self.elements <= MAX_ELEMENTS, f"{self.elements} elements: 1 to {MAX_ELEMENTS}"),
            (
                self.chunk_elements % 8 == 0 and 8 <= self.chunk_elements <= MAX_CHUNK_ELEMENTS,
                f"chunks of {self.chunk_elements} elements: a multiple of 8, at most {MAX_CHUNK_ELEMENTS}",
            ),
            (
                self.elements <= self.chunk_elements * MAX_CHUNKS,
                f"{self.elements} elements in chunks of {self.chunk_elements}: at most {MAX_CHUNKS} chunks",
            ),
            (all(ridge > 0 for ridge in self.ridges), "a ridge parameter is not above zero"),
            (
                self.statistic != Family.INDICATOR or self.elements <= MAX_CLASSES,
                f"an indicator of {self.elements} classes: at most {MAX_CLASSES}",
            ),
            (self.indicator != NO_INDICATOR or not self.withheld, "classes withheld without an indicator"),
            (self.indicator != NO_INDICATOR or not self.evicted, "members evicted without an indicator"),
        ):
            if not holds:
                raise PeerFault(Cause.TERMS_REFUSED, what)

    @property
    def family(self) -> "Family":
        """Which rounds this one's sums can be combined with (protocol §8)."""
        if self.statistic == Family.INDICATOR:
            return Family.INDICATOR
        return Family.NOISY if self.noise else Family.EXACT

    @property
    def hash(self) -> bytes:
        """Names the terms, layout included."""
        return hash_fields(Tag.TERMS, self.encode_fields())

    @property
    def layout_hash(self) -> bytes:
        """Names the layout alone."""
        return hash_fields(Tag.LAYOUT, self.layout)


class Link(Shared):
    """An earlier attempt of the federation and how it ended.

    Attributes:
        family: what its terms made it, see `Family`.
        floor: g of its cohort, to which the ledger holds the groups that were in its sum.
        closing: `closing_hash` of how it ended.
    """

    cohort: Digest
    sequence: U64
    attempt: U8
    family: Id
    floor: U32
    context: Digest
    closing: Digest

    def validate(self) -> None:
        """Refuse a ninth attempt, and a family that the ledger would count nowhere."""
        _check_attempt(self.attempt)
        if self.family not in set(Family):
            raise PeerFault(Cause.MALFORMED, f"{self.family} is no family of rounds", ["coordinator"])


class LedgerException(Signed):
    """The admin lets one sequence expose the group of exactly these members' columns (protocol §8).

    Attributes:
        reason: the admin's words: what becomes readable, and why.
    """

    kind: ClassVar[int] = Kind.EXCEPTION
    tag: ClassVar[Tag] = Tag.EXCEPTION

    federation: Key
    cohort: Digest
    sequence: U64
    members: Annotated[tuple[str, ...], Many(Name(), MAX_MEMBERS, ascending=True)]
    reason: Annotated[str, Text(1 << 10)]
    signature: Signature


class Opening(Signed):
    """The coordinator opens an attempt; every member derives the context from what it says.

    Attributes:
        links: every ended attempt of the federation, oldest first.
        exceptions: the admin's, for this sequence.
    """

    kind: ClassVar[int] = Kind.OPENING
    tag: ClassVar[Tag] = Tag.OPENING

    cohort: Digest
    sequence: U64
    attempt: U8
    links: Annotated[tuple[Link, ...], Many(Nested(Link), MAX_LINKS)]
    terms: Annotated[Terms, Nested(Terms)]
    exceptions: Annotated[tuple[LedgerException, ...], Many(Nested(LedgerException), 16)]
    signature: Signature

    def validate(self) -> None:
        """Refuse a ninth attempt."""
        _check_attempt(self.attempt)

    @property
    def exceptions_hash(self) -> bytes:
        """Names the exceptions in the context."""
        return hash_fields(Tag.EXCEPTION, *(exception.to_bytes() for exception in self.exceptions))

    @property
    def place(self) -> tuple[int, int]:
        """Sequence and attempt: where in the cohort's life this stands."""
        return self.sequence, self.attempt


def _check_attempt(attempt: int) -> None:
    if attempt >= MAX_ATTEMPTS:
        raise PeerFault(Cause.WRONG_SEQUENCE, f"attempt {attempt}: a round has at most {MAX_ATTEMPTS}")


EMPTY_CHAIN = bytes(32)


def extend_chain(head: bytes, links: tuple[Link, ...]) -> bytes:
    """Fold links onto a chain head: head' = H(link tag, head, link)."""
    for link in links:
        head = hash_fields(Tag.LINK, head, link.encode_fields())
    return head
