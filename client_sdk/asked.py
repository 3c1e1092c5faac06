"""What a round's signed terms ask of a member: a question, the material it rests on, and the noise to add."""

import hashlib
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load

from calibration.errors import CalibrationError
from calibration.lattice import FeaturesLattice, IndicatorLattice, SumsLattice, lattice_from
from calibration.layout import Layout
from calibration.privacy import Mechanism, NoiseTerms
from calibration.questions import MATERIAL, Question, question
from client_sdk.errors import PeerFault
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.messages import Family, Terms

Lattice = SumsLattice | FeaturesLattice | IndicatorLattice


def terms_lattice(attempt: Attempt) -> Lattice:
    """The lattice that the terms name; PeerFault(terms-refused) for one that does not exist."""
    terms = attempt.opening.terms
    try:
        if terms.lattice == IndicatorLattice.name:
            return IndicatorLattice(terms.lattice_bits)
        return lattice_from(terms.lattice, terms.lattice_bits)
    except CalibrationError as error:
        raise contradiction(str(error)) from error


def terms_question(attempt: Attempt, material: bytes | None = None) -> Question:
    """What the round asks; PeerFault(terms-refused) for a question that this release does not know."""
    terms = attempt.opening.terms
    try:
        layout = Layout.from_bytes(terms.layout)
        found = question(terms.statistic, layout, attempt.context, _arrays(material))
        _ = found.dim, found.classes, found.noisy
    except CalibrationError as error:
        raise contradiction(str(error)) from error
    if terms.elements != layout.elements:
        raise contradiction(f"{terms.elements} elements, of which the layout has {layout.elements}")
    return found


def terms_noise(terms: Terms) -> NoiseTerms | None:
    """What the terms say of noise; None for an exact sum; PeerFault(terms-refused)."""
    try:
        return NoiseTerms.from_bytes(terms.noise) if terms.noise else None
    except CalibrationError as error:
        raise contradiction(str(error)) from error


def terms_mechanism(attempt: Attempt) -> Mechanism | None:
    """The noise as it follows from terms and manifest; None for an exact sum; PeerFault(terms-refused)."""
    terms = attempt.opening.terms
    if (noise := terms_noise(terms)) is None:
        return None
    try:
        return noise.mechanism(
            terms_question(attempt),
            lattice_from(terms.lattice, terms.lattice_bits),
            members=len(attempt.members),
            survivors_min=attempt.manifest.survivors_min,
            colluders=attempt.manifest.colluders,
        )
    except CalibrationError as error:
        raise contradiction(str(error)) from error


def mu_of(attempt: Attempt) -> float:
    """What an upload to the attempt costs of a lineage's budget; 0 for an exact sum."""
    mechanism = terms_mechanism(attempt)
    return 0.0 if mechanism is None else mechanism.mu_round


def check_question(attempt: Attempt) -> None:
    """Refuse terms that no question goes with, in this order (terms-refused).

    1. the question is known, and the layout one of its own; 2. the layout is one for noise exactly if there is noise; 3. a noisy sum is on
    the features lattice, an exact one on the sums lattice; 4. noise is of a known mechanism, which can be drawn here.
    """
    terms = attempt.opening.terms
    if terms.family == Family.INDICATOR:
        return
    found = terms_question(attempt)
    how = "noisy" if terms.noise else "exact"
    if found.noisy != bool(terms.noise):
        raise contradiction(
            f"{how} sums of {found.name}, whose terms are of {'exact' if terms.noise else 'noisy'} ones"
        )
    if terms.lattice != (FeaturesLattice if terms.noise else SumsLattice).name:
        raise contradiction(f"{how} sums of {found.name} on the {terms.lattice} lattice")
    terms_mechanism(attempt)


def material_digest(terms: Terms) -> str | None:
    """The digest of what is published beside the opening, in hexadecimal; None where nothing is."""
    if terms.family == Family.INDICATOR:
        return None
    try:
        digest = Layout.from_bytes(terms.layout).parameter(MATERIAL)
    except CalibrationError as error:
        raise contradiction(str(error)) from error
    return None if digest is None else str(digest)


def check_material(terms: Terms, content: bytes) -> None:
    """Refuse other material than the terms name (terms-refused)."""
    if hashlib.sha256(content).hexdigest() != material_digest(terms):
        raise contradiction("the material shown is not that whose digest the terms hold")


def contradiction(detail: str) -> PeerFault:
    """The fault of a coordinator whose terms contradict themselves, or ask for what this release cannot do (terms-refused)."""
    return PeerFault(Cause.TERMS_REFUSED, detail, ["coordinator"])


def _arrays(material: bytes | None) -> Mapping[str, Any]:
    if material is None:
        return {}
    try:
        arrays: Mapping[str, Any] = load(material)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CalibrationError(f"the round's material is no safetensors file: {error}") from error
    return arrays
