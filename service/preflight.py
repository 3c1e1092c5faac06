"""Prove that a round can work before it opens, or refuse with the numbers."""

from typing import Any

from calibration import (
    CalibrationError,
    FeaturesLattice,
    HeadroomExceeded,
    Lattice,
    Layout,
    SumsLattice,
    check_ridge,
    ffc_layout,
    indicator_classes,
)
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import NO_INDICATOR, Family, Manifest, Roster, Terms
from protocol.rest import HelperRoundRequest, RoundRequest, TermsView
from service.indicating import NOTHING, Clauses, indicator_terms

_USEFUL_BITS: dict[str, tuple[type[Lattice], int, int]] = {
    "sums": (SumsLattice, 40, 8),
    "features": (FeaturesLattice, 16, 4),
}
"""Each lattice's finest and coarsest scale that a round is given."""

PROMISED_BITS = 48
"""From this width on the weights are promised within 1e-6 of float64 ridge."""


def terms_of(
    request: RoundRequest, roster: Roster, manifest: Manifest, now_s: float, clauses: Clauses = NOTHING
) -> Terms:
    """The terms of a round; `clauses` say what is withheld, and by which counts.

    The lattice gets the finest scale whose sums still fit the ring: 2^(b−1) > bound(N_max, n).

    Raises:
        PeerFault: terms-refused, where the extractor is not approved, N_max is below the members' caps, no scale fits the ring,
            or a ridge is too small for the precision promised; with what would do. And as `indicator_terms`.
    """
    extractor, records_max = _asked(request, roster, sum(manifest.caps))
    latest_end_s = int(now_s + request.lifetime_s)
    if request.statistic == "indicator":
        return _valid(indicator_terms(request, manifest, extractor, records_max, latest_end_s))
    own = _ffc_terms(request, extractor, records_max, len(manifest.members))
    return _valid(Terms(**own, **clauses, latest_end_s=latest_end_s))


def helper_terms_of(request: HelperRoundRequest, roster: Roster, clients: int, now_s: float) -> Terms:
    """The terms of a round with mask helpers; PeerFault as `terms_of`."""
    if roster.withhold:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            "the admin demands that rare classes are withheld, which takes an indicator round, and rounds with helpers have "
            "none: have the admin sign a roster with --publish-rare-classes",
        )
    extractor, records_max = _asked(request, roster, clients * request.records_cap)
    own = _ffc_terms(request, extractor, records_max, clients)
    return _valid(Terms(**own, **NOTHING, latest_end_s=int(now_s + request.lifetime_s)))


def _asked(request: RoundRequest, roster: Roster, caps: int) -> tuple[bytes, int]:
    """The extractor and N_max asked for, which the roster and the members' caps allow."""
    extractor = bytes.fromhex(request.extractor)
    if extractor not in roster.extractors:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"extractor {request.extractor} is not in roster version {roster.version_number}: "
            "have the admin sign a roster that lists it",
        )
    records_max = request.records_max or caps
    if records_max < caps:
        raise PeerFault(
            Cause.TERMS_REFUSED, f"records_max is {records_max}, but the members' caps add up to {caps}"
        )
    return extractor, records_max


def _valid(terms: Terms) -> Terms:
    terms.validate()  # what members would refuse, and what a restart could not read back
    return terms


def _ffc_terms(request: RoundRequest, extractor: bytes, records_max: int, members: int) -> dict[str, Any]:
    assert request.dim is not None
    lattice = _finest(request, records_max, members)
    rows = request.dim + request.bias
    if isinstance(lattice, SumsLattice) and request.ring_bits >= PROMISED_BITS:
        try:
            for ridge in request.ridges:
                check_ridge(ridge, dim=rows, members=members, scale_bits=lattice.bits)
        except CalibrationError as error:
            raise PeerFault(Cause.TERMS_REFUSED, str(error)) from error
    layout = ffc_layout(request.dim, request.classes, bias=request.bias)
    return {
        "statistic": "ffc-bias" if request.bias else "ffc",
        "layout": layout.to_bytes(),
        "elements": layout.elements,
        "ring_bits": request.ring_bits,
        "lattice": lattice.name,
        "lattice_bits": lattice.bits,
        "chunk_elements": request.chunk_elements,
        "records_max": records_max,
        "extractor": extractor,
        "ridges": request.ridges,
        "noise": b"",
    }


def terms_view(terms: Terms) -> TermsView:
    """A round's terms as JSON shows them."""
    bias, layout = terms.statistic == "ffc-bias", Layout.from_bytes(terms.layout)
    if terms.family == Family.INDICATOR:
        dim, classes = None, indicator_classes(layout)
    else:
        rows, classes = next(block.shape for block in layout.blocks if block.name == "U")
        dim = rows - bias
    return TermsView(
        statistic=terms.statistic,
        dim=dim,
        classes=classes,
        bias=bias,
        elements=terms.elements,
        lattice=terms.lattice,
        lattice_bits=terms.lattice_bits,
        ring_bits=terms.ring_bits,
        chunk_elements=terms.chunk_elements,
        records_max=terms.records_max,
        extractor=terms.extractor.hex(),
        ridges=terms.ridges,
        latest_end_s=terms.latest_end_s,
        indicator=None if terms.indicator == NO_INDICATOR else terms.indicator.hex(),
        margin=terms.margin,
        withheld=terms.withheld,
    )


def _finest(request: RoundRequest, records_max: int, members: int) -> Lattice:
    form, finest, coarsest = _USEFUL_BITS[request.lattice]
    try:
        return form.for_ring(request.ring_bits, records_max, members, finest=finest, coarsest=coarsest)
    except HeadroomExceeded as error:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"{records_max} records of {members} members do not fit {request.ring_bits} bits at any useful scale: "
            f"the {request.lattice} lattice needs {error.required_bits} bits or more; "
            "widen the ring or lower the members' caps",
        ) from error
