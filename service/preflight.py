"""Prove that a round can work before it opens, or refuse with the numbers."""

from collections.abc import Iterator
from typing import Any

from calibration import (
    CalibrationError,
    FeaturesLattice,
    HeadroomExceeded,
    Layout,
    SumsLattice,
    check_ridge,
    indicator_classes,
)
from calibration.privacy import NOISY_BITS, Mechanism, Neighbours, NoiseTerms, Plan, Verdict, gdp_mu
from calibration.questions import MATERIAL, RESTS_ON, kind, question
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.cost import plan_of
from protocol.errors import PeerFault
from protocol.messages import NO_INDICATOR, Family, Manifest, Roster, Terms
from protocol.preflight import DecryptorsView, OutlookView, PreflightView
from protocol.rest import RoundRequest, TermsView
from service.asked import PROMISED_BITS, mechanism_of, noise_view
from service.indicating import NOTHING, Clauses, indicator_terms
from service.storage.blobs import Blobs

_SUMS_BITS = {"finest": 40, "coarsest": 8}
_NOISY_BITS_MIN = 4
"""The scales that a round is given."""


def terms_of(
    request: RoundRequest,
    roster: Roster,
    manifest: Manifest,
    now_s: float,
    layout: Layout | None,
    clauses: Clauses = NOTHING,
) -> Terms:
    """The terms of a round; `clauses` say what is withheld, and by which counts.

    The lattice gets the finest scale whose sums still fit the ring: 2^(b−1) > bound(N_max, n, T).

    Args:
        request: of the operator.
        roster: the cohort's.
        manifest: the cohort's.
        now_s: Unix time.
        layout: what the request comes to (`service.resting.layout_of`); None for an indicator round.
        clauses: what is withheld.

    Raises:
        PeerFault: terms-refused, where the extractor is not approved, N_max is below the members' caps, no scale fits the ring,
            a ridge is too small for the precision promised, the noise can't be promised, or leaves so little of a head that
            the operator has to insist; with what would do. And as `indicator_terms`.
    """
    extractor, records_max = _asked(request, roster, sum(manifest.caps))
    latest_end_s = int(now_s + request.lifetime_s)
    if layout is None:
        return _valid(indicator_terms(request, manifest, extractor, records_max, latest_end_s))
    if request.noise is not None and roster.withhold:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            "the admin demands that rare classes are withheld, by exact counts of their holders, and a noisy round has nothing "
            "exact beside it: have the admin sign a roster with --publish-rare-classes",
        )
    own = _question_terms(request, layout, extractor, records_max, manifest)
    return _valid(Terms(**own, **clauses, latest_end_s=latest_end_s))


def check_room(attempt: Attempt, blobs: Blobs) -> None:
    """Refuse a round whose uploads and sums the disk has no room for (terms-refused), where anybody can say.

    Rounds of other federations that run at the same time are not counted.
    """
    free_bytes = blobs.free_bytes()
    uploads_bytes = plan_of(attempt).cost.stored_bytes
    sums_bytes = 16 * attempt.opening.terms.elements  # while it is added up, and as it is kept
    if free_bytes is not None and free_bytes < uploads_bytes + sums_bytes:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"{len(attempt.members)} uploads take {uploads_bytes:,} bytes and their sum {sums_bytes:,}, and the coordinator's disk "
            f"has {free_bytes:,} left: make room there, keep uploads elsewhere (VEILSUM_BLOBS_URL), or sum fewer numbers",
        )


def preflight_view(attempt: Attempt, decryptors: DecryptorsView, *, counts_first: bool) -> PreflightView:
    """An attempt that could be opened."""
    opening, manifest = attempt.opening, attempt.manifest
    return PreflightView(
        federation=attempt.roster.federation.hex(),
        cohort=manifest.cohort.hex(),
        sequence=opening.sequence,
        attempt=opening.attempt,
        members=len(attempt.members),
        survivors_min=manifest.survivors_min,
        counts_first=counts_first,
        terms=terms_view(opening.terms, manifest),
        cost=plan_of(attempt).sentence,
        outlook=_outlook(opening.terms, manifest),
        decryptors=decryptors,
    )


def _outlook(terms: Terms, manifest: Manifest) -> OutlookView | None:
    if not terms.noise:
        return None
    classes = question(terms.statistic, Layout.from_bytes(terms.layout)).classes
    delta = NoiseTerms.from_bytes(terms.noise).delta
    plan = _expected(terms.statistic, mechanism_of(terms, manifest), terms.records_max, delta, classes)
    if plan is None:
        return None
    median, worst = plan.expected_loss
    return OutlookView(verdict=plan.verdict.value, median_loss=median, worst_loss=worst)


def _expected(
    statistic: str, mechanism: Mechanism, records_max: int, delta: float, classes: int
) -> Plan | None:
    """What the noise would leave of a head if all records came; None for questions whose loss nobody has measured."""
    return Plan(mechanism, records_max, delta, classes) if statistic in {"ffc", "ffc-bias"} else None


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


def _question_terms(
    request: RoundRequest,
    layout: Layout,
    extractor: bytes,
    records_max: int,
    manifest: Manifest,
) -> dict[str, Any]:
    asked, members = kind(request.question), len(manifest.members)
    noise = None if request.noise is None else _noise(request)
    lattice: SumsLattice | FeaturesLattice
    if noise is None:
        lattice = _finest(request, records_max, members)
    else:
        mechanism = _noisy(request, noise, layout, records_max, manifest)
        _refuse_hopeless(request, mechanism, records_max)
        lattice = mechanism.lattice
    posed = question(asked.name, layout)
    rows = posed.rows
    if request.ridges and (noise is not None or not rows):
        why = (
            "a noisy sum is solved by shrinkage"
            if noise
            else f"a {asked.name} round chooses no λ from a grid"
        )
        raise PeerFault(Cause.TERMS_REFUSED, f"{why}: leave the ridges out")
    if isinstance(lattice, SumsLattice) and request.ring_bits >= PROMISED_BITS:
        try:
            for ridge in request.ridges:
                check_ridge(ridge, dim=rows, members=posed.roundings * members, scale_bits=lattice.bits)
        except CalibrationError as error:
            raise PeerFault(Cause.TERMS_REFUSED, str(error)) from error
    return {
        "statistic": asked.name,
        "layout": layout.to_bytes(),
        "elements": layout.elements,
        "ring_bits": request.ring_bits,
        "lattice": lattice.name,
        "lattice_bits": lattice.bits,
        "chunk_elements": request.chunk_elements,
        "records_max": records_max,
        "extractor": extractor,
        "ridges": request.ridges,
        "noise": b"" if noise is None else noise.to_bytes(),
    }


def _noise(request: RoundRequest) -> NoiseTerms:
    wanted = request.noise
    assert wanted is not None
    try:
        return NoiseTerms.for_classes(
            request.classes,
            gdp_mu(wanted.epsilon, wanted.delta),
            wanted.delta,
            neighbours=Neighbours(wanted.neighbours),
            nonnegative=wanted.nonnegative,
            member_records=wanted.member_records,
        )
    except CalibrationError as error:
        raise PeerFault(Cause.TERMS_REFUSED, str(error)) from error


def terms_view(terms: Terms, manifest: Manifest) -> TermsView:
    """A round's terms as JSON shows them."""
    layout = Layout.from_bytes(terms.layout)
    parameters = dict(layout.parameters)
    rests_on = parameters.pop(RESTS_ON, None)
    parameters.pop(MATERIAL, None)
    if terms.family == Family.INDICATOR:
        dim, classes, bias = None, indicator_classes(layout), False
    else:
        asked = question(terms.statistic, layout)
        dim, classes, bias = asked.dim, asked.classes, asked.bias
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
        parameters=parameters,
        rests_on=None if rests_on is None else str(rests_on),
        noise=noise_view(terms, manifest),
    )


def _finest(request: RoundRequest, records_max: int, members: int) -> SumsLattice:
    try:
        return SumsLattice.for_ring(request.ring_bits, records_max, members, **_SUMS_BITS)
    except HeadroomExceeded as error:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"{records_max} records of {members} members do not fit {request.ring_bits} bits at any useful scale: "
            f"they need {error.required_bits} bits or more; "
            "widen the ring or lower the members' caps",
        ) from error


def _noisy(
    request: RoundRequest, noise: NoiseTerms, layout: Layout, records_max: int, manifest: Manifest
) -> Mechanism:
    """On the finest lattice on which the noise can be drawn and the noisy sum fits the ring."""
    refused: CalibrationError | None = None
    for lattice in _scales():
        try:
            mechanism = noise.mechanism(
                question(request.question, layout),
                lattice,
                members=len(manifest.members),
                survivors_min=manifest.survivors_min,
                colluders=manifest.colluders,
            )
            lattice.check_headroom(
                request.ring_bits, records_max, len(manifest.members), mechanism.noise_tail
            )
        except CalibrationError as error:
            # Where finer lattices lack room, that coarser ones lack steps is no help.
            refused = refused if isinstance(refused, HeadroomExceeded) else error
        else:
            return mechanism
    raise PeerFault(
        Cause.TERMS_REFUSED, f"no scale of the features lattice holds the noise: {refused}"
    ) from refused


def _refuse_hopeless(request: RoundRequest, mechanism: Mechanism, records_max: int) -> None:
    """Refuse noise that leaves little of a head however many records come."""
    assert request.noise is not None
    made = _expected(request.question, mechanism, records_max, request.noise.delta, request.classes)
    if made is not None and made.verdict is Verdict.HOPELESS and not request.noise.insist:
        median, worst = made.expected_loss
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"even if all {records_max:,} records came, so much noise would be expected to cost {median:g} points of accuracy, "
            f"and up to {worst:g} were measured; any of these would help: {'; '.join(made.advice())}. Ask for less (`veilsum "
            "privacy plan` says what to expect), or insist (`insist` in the request's noise, `--insist` of `veilsum operator round open`)",
        )


def _scales() -> Iterator[FeaturesLattice]:
    return (FeaturesLattice(bits) for bits in range(NOISY_BITS, _NOISY_BITS_MIN - 1, -1))
