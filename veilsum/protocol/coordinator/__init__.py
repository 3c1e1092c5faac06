"""The coordinator's side of the secure sum: one immutable class per phase, without I/O or clock."""

from veilsum.protocol.coordinator.base import (
    Certified,
    ClosedByAdmin,
    CoordinatorPhase,
    Ended,
    Erasing,
    Failed,
    Recovered,
    Voided,
    VoidedByErasure,
    Voiding,
    disclose_vectors,
)
from veilsum.protocol.coordinator.checking import Checking
from veilsum.protocol.coordinator.collecting import Collecting
from veilsum.protocol.coordinator.enrolling import Enrolling
from veilsum.protocol.coordinator.freezing import Freezing
from veilsum.protocol.coordinator.pairing import PairingWindow
from veilsum.protocol.coordinator.revealing import Revealing

__all__ = [
    "Certified",
    "Checking",
    "ClosedByAdmin",
    "Collecting",
    "CoordinatorPhase",
    "Ended",
    "Enrolling",
    "Erasing",
    "Failed",
    "Freezing",
    "PairingWindow",
    "Recovered",
    "Revealing",
    "Voided",
    "VoidedByErasure",
    "Voiding",
    "disclose_vectors",
]
