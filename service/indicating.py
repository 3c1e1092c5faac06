"""The terms of an indicator round, and those that a round has which rests on one (protocol §9)."""

from typing import TypedDict

from calibration import IndicatorLattice, indicator_layout
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import COMMITMENT_BYTES, NO_INDICATOR, Family, Manifest, Terms
from protocol.rest import MAX_DISCLOSURE_BYTES, RoundRequest

RING_BITS_MIN = 8
_ENTRY_BYTES = 2048
"""A header, a path and the lengths in an entry of a disclosure, at the most."""
_SEED_BYTES = 36


class Clauses(TypedDict):
    """The terms that rest on an indicator round."""

    indicator: bytes
    margin: int
    withheld: tuple[int, ...]
    evicted: tuple[str, ...]


NOTHING: Clauses = {"indicator": NO_INDICATOR, "margin": 0, "withheld": (), "evicted": ()}
"""Those of a round that rests on none."""


def indicator_terms(
    request: RoundRequest, manifest: Manifest, extractor: bytes, records_max: int, latest_end_s: int
) -> Terms:
    """The terms of an indicator round: one element a class, in the narrowest ring that holds a count of all members.

    Raises:
        PeerFault: terms-refused, where its disclosure would be longer than a member reads.
    """
    layout, lattice, members = indicator_layout(request.classes), IndicatorLattice(), len(manifest.members)
    ring_bits = max(RING_BITS_MIN, lattice.required_bits(records_max, members))
    each = _ENTRY_BYTES + (COMMITMENT_BYTES + _SEED_BYTES) * (1 + manifest.degree) + 8 * layout.elements
    if members * each > MAX_DISCLOSURE_BYTES:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"what {members} members would be shown of {request.classes} classes may take {members * each} bytes, more than "
            f"the {MAX_DISCLOSURE_BYTES} that a member reads: form smaller cohorts",
        )
    return Terms(
        statistic=Family.INDICATOR.value,
        layout=layout.to_bytes(),
        elements=layout.elements,
        ring_bits=ring_bits,
        lattice=lattice.name,
        lattice_bits=lattice.bits,
        chunk_elements=request.chunk_elements,
        records_max=records_max,
        extractor=extractor,
        ridges=(),
        noise=b"",
        latest_end_s=latest_end_s,
        **NOTHING,
    )
