"""What a member brings to a round, and whether the round's terms fit it."""

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from calibration.lattice import IndicatorLattice
from calibration.layout import Layout
from client_sdk.asked import (
    check_question,
    contradiction,
    terms_lattice,
    terms_mechanism,
    terms_noise,
    terms_question,
)
from client_sdk.errors import Misuse, PeerFault
from client_sdk.policy import refused
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.messages import NO_INDICATOR, Family, Terms
from protocol.ring import HeadroomError
from protocol.tags import Tag, info


class Statistics(Protocol):
    """What `contribute` takes: `calibration.FFCStatistics` is one."""

    @property
    def layout(self) -> Layout:
        """The blocks that make up the vector, in their order, and what was asked beside them."""
        ...

    @property
    def statistic(self) -> str:
        """What the vector is, as terms name it."""
        ...

    @property
    def withheld(self) -> tuple[int, ...]:
        """The classes whose records are in no block but are named by the digests, ascending."""
        ...

    @property
    def records(self) -> int:
        """How many records are summed."""
        ...

    @property
    def records_digest(self) -> bytes:
        """32 bytes that name the set of records, whatever their order."""
        ...

    @property
    def record_digests(self) -> bytes:
        """16 bytes that name each record, joined."""
        ...

    def pieces(self, lattice: Any, elements: int) -> Iterator[npt.NDArray[np.int64]]:
        """The (elements,) int64 vector on a lattice, in pieces of so many elements."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class Offer:
    """Statistics under a lineage's name.

    Attributes:
        statistics: what is summed.
        name: the lineage's, for this member alone.
        lineage: lin_u, 8 bytes.
        records: ver_u, 8 bytes.
        constant: what stands for ver_u under noise, the same whatever the records: what changed between two rounds is nobody's business.
        hashes: a keyed hash of each record, sorted.
    """

    statistics: Statistics
    name: str
    lineage: bytes
    records: bytes
    constant: bytes
    hashes: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, statistics: Statistics, lineage: str, lineage_key: bytes) -> "Offer":
        """Tag statistics for the ledger, so that only this member can tell what the tags name.

        Raises:
            Misuse: the lineage has no name.
            RecordsNotTracked: the statistics keep no digest of their records.
        """
        name = lineage_name(lineage)
        return cls(
            statistics,
            lineage,
            lineage_tag(lineage_key, lineage),
            _tag(lineage_key, info(Tag.RECORDS, name, statistics.records_digest)),
            _tag(lineage_key, info(Tag.RECORDS, name)),
            record_hashes(lineage_key, statistics.record_digests),
        )

    def tag(self, terms: Terms) -> bytes:
        """ver_u as it stands in the upload: the records', or under noise the lineage's constant one."""
        return self.constant if terms.noise else self.records

    def check(self, attempt: Attempt, member: str) -> None:
        """Refuse terms that ask for something else than these statistics, in this order.

        1. the statistic's name; 2. layout and elements; 3. the noise that they were made for, whose sensitivity rests on what they cut;
        4. the classes withheld; 5. the lattice that integers were made on (policy-refused, naming the term); 6. of an exact sum, the member's records are within its cap (too-many-records); under noise the sum is cut to what a
        cap's records can reach, and nothing tells how many there are.
        """
        terms, own = attempt.opening.terms, self.statistics
        if terms.statistic != own.statistic:
            raise refused("statistic", f"{own.statistic}, which its statistics are,", terms.statistic)
        if not _fits(attempt, own.layout):
            raise refused(
                "layout", "that of its statistics: same dim, classes, bias and parameters,", "another"
            )
        if terms.elements != own.layout.elements:
            raise refused("elements", own.layout.elements, terms.elements)
        noise = terms_noise(terms)
        if getattr(own, "noise", None) != noise or (
            noise is not None and own.layout.to_bytes() != terms.layout
        ):
            raise refused(
                "noise",
                "that which its statistics were made for, and passes Records to make others of;",
                "another",
            )
        if terms.withheld != own.withheld:
            raise refused(
                "withheld",
                f"classes {list(own.withheld)} left out, as its statistics leave them, and passes Records to leave out others;",
                f"{list(terms.withheld)}",
            )
        made_on, lattice = getattr(own, "lattice", None), terms_lattice(attempt)
        if made_on is not None and lattice != made_on:
            raise refused("lattice", made_on, lattice)
        cap = cap_of(attempt, member)
        if own.records > cap and not terms.noise:
            raise PeerFault(
                Cause.TOO_MANY_RECORDS,
                f"these statistics sum {own.records} records, this cohort's cap is {cap}: contribute fewer, or ask "
                "for a cohort with a higher cap",
                [member],
            )


def cap_of(attempt: Attempt, member: str) -> int:
    """The most records that a member may bring."""
    manifest = attempt.manifest
    return manifest.caps[manifest.members.index(member)]


def check_consistent(attempt: Attempt) -> None:
    """Refuse terms that contradict themselves, in this order (terms-refused).

    1. the lattice exists; 2. it is an indicator's exactly if the statistic is; 3. the question and its noise are known
    (`check_question`); 4. no exact count stands beside noise; 5. no sum that the terms admit wraps around.
    That the members' caps sum to N_max at most, `protocol.member.Ready` has checked.
    """
    terms = attempt.opening.terms
    lattice = terms_lattice(attempt)
    if isinstance(lattice, IndicatorLattice) != (terms.family == Family.INDICATOR):
        raise contradiction(f"a round of {terms.statistic} statistics on the {lattice.name} lattice")
    check_question(attempt)
    if terms.noise and terms.indicator != NO_INDICATOR:
        raise contradiction("noise in a round that rests on exact counts of the classes' holders")
    mechanism = terms_mechanism(attempt)
    tail = 0 if mechanism is None else mechanism.noise_tail
    try:
        attempt.ring.prove_headroom(lattice.bound(terms.records_max, len(attempt.members), tail))
    except HeadroomError as error:
        raise contradiction(str(error)) from error


def _fits(attempt: Attempt, layout: Layout) -> bool:
    terms = attempt.opening.terms
    if terms.family == Family.INDICATOR:
        return terms.layout == layout.to_bytes()
    return terms_question(attempt).takes(layout)


def lineage_name(lineage: str) -> bytes:
    """A lineage's name in UTF-8; Misuse for none, and for what is no text."""
    if not lineage:
        raise Misuse(
            "a lineage needs a name, such as the data set's and its year's: pass lineage=, the same for the same records always"
        )
    try:
        return lineage.encode()
    except UnicodeEncodeError as error:
        raise Misuse(f"{lineage!r} is no lineage's name: it is not UTF-8 where it came from") from error


def lineage_tag(key: bytes, lineage: str) -> bytes:
    """lin_u, the 8 bytes by which uploads name a lineage; Misuse as `lineage_name`."""
    return _tag(key, info(Tag.LINEAGE, lineage_name(lineage)))


def _tag(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")[:8]


def record_hashes(key: bytes, digests: bytes) -> npt.NDArray[np.uint64]:
    """8 bytes a record under the member's key, sorted: whoever finds them can't test whether a record is there."""
    keyed = (
        hashlib.blake2b(
            digests[start : start + 16], digest_size=8, key=key, person=b"veilsum-record"
        ).digest()
        for start in range(0, len(digests), 16)
    )
    return np.sort(np.frombuffer(b"".join(keyed), "<u8"))
