"""What a round's terms ask, read by the coordinator: its question with its material, and the noise that members add."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from calibration import Layout, lattice_from
from calibration.head_file import Calibrated, notes_in
from calibration.privacy import Mechanism, NoiseTerms
from calibration.questions import MATERIAL, Question, Summed, question
from protocol.attempt import Attempt
from protocol.messages import Manifest, Terms
from protocol.rest import HEAD, NoiseView
from service.storage.blobs import Blobs

SUMS, WEIGHTS = "sums", "weights"
MATERIALS = "materials"
"""The folder of what rounds rest on."""
PROMISED_BITS = 48
"""From this width on the weights are promised within 1e-6 of float64 ridge."""


def asked_question(attempt: Attempt, blobs: Blobs) -> Question:
    """The question of a round that was opened here, material included."""
    terms = attempt.opening.terms
    layout = Layout.from_bytes(terms.layout)
    return question(terms.statistic, layout, attempt.context, load(material_of(terms, blobs) or save({})))


def material_of(terms: Terms, blobs: Blobs) -> bytes | None:
    """The file that members fetch beside the opening; None where the question needs none."""
    digest = material_named(terms)
    return None if digest is None else blobs.get(f"{MATERIALS}/{digest}")


def material_named(terms: Terms) -> str | None:
    """The digest of that file, in hexadecimal."""
    named = Layout.from_bytes(terms.layout).parameter(MATERIAL)
    return None if named is None else str(named)


def summed_of(attempt: Attempt, vectors: int, ridges: tuple[float, ...] | None = None) -> Summed:
    """How a round's sum came about: so many members' vectors."""
    terms = attempt.opening.terms
    lattice = lattice_from(terms.lattice, terms.lattice_bits)
    return Summed(
        lattice,
        vectors,
        terms.ridges if ridges is None else ridges,
        terms.ring_bits >= PROMISED_BITS,
        mechanism_of(terms, attempt.manifest) if terms.noise else None,
    )


def mechanism_of(terms: Terms, manifest: Manifest) -> Mechanism:
    """The mechanism that every member derives too; CalibrationError where the terms make none."""
    return NoiseTerms.from_bytes(terms.noise).mechanism(
        question(terms.statistic, Layout.from_bytes(terms.layout)),
        lattice_from(terms.lattice, terms.lattice_bits),
        members=len(manifest.members),
        survivors_min=manifest.survivors_min,
        colluders=manifest.colluders,
    )


def noise_view(terms: Terms, manifest: Manifest) -> NoiseView | None:
    """What a round's noise promises; None for an exact sum."""
    if not terms.noise:
        return None
    noise = NoiseTerms.from_bytes(terms.noise)
    return NoiseView.model_validate(noise.promise(mechanism_of(terms, manifest)))


def document(arrays: Mapping[str, npt.NDArray[Any]], notes: Mapping[str, Any]) -> bytes:
    """Arrays and what they do not say, as safetensors: the same bytes for the same content."""
    # One entry: the library writes several in any order, and the record names the file's digest.
    metadata = {HEAD: json.dumps(notes, sort_keys=True)} if notes else None
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)


def head_in(content: bytes) -> Calibrated:
    """The head in a file that `document` made here."""
    return Calibrated.of(load(content), notes_in(content, HEAD))
