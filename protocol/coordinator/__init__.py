"""The coordinator's side of the secure sum: one class a phase, each a value without I/O or clock."""

from protocol.coordinator.base import CoordinatorPhase, Setting, Windows
from protocol.coordinator.checking import Checking
from protocol.coordinator.collecting import Collecting
from protocol.coordinator.disclosing import disclose
from protocol.coordinator.ended import Certified, Ended, Failed, Lost, Recovered, Voided, VoidedByErasure
from protocol.coordinator.enrolling import Enrolling
from protocol.coordinator.erasing import Erasing
from protocol.coordinator.freezing import Freezing
from protocol.coordinator.revealing import Revealing
from protocol.coordinator.voiding import Voiding

__all__ = [
    "Certified",
    "Checking",
    "Collecting",
    "CoordinatorPhase",
    "Ended",
    "Enrolling",
    "Erasing",
    "Failed",
    "Freezing",
    "Lost",
    "Recovered",
    "Revealing",
    "Setting",
    "Voided",
    "VoidedByErasure",
    "Voiding",
    "Windows",
    "disclose",
]
