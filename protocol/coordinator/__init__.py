"""The coordinator's side of the secure sum: one class a phase, each a value without I/O or clock."""

from protocol.coordinator.base import CoordinatorPhase, Setting, Windows
from protocol.coordinator.checking import Checking
from protocol.coordinator.collecting import Collecting
from protocol.coordinator.ended import Ended, Lost, Recovered, Voided
from protocol.coordinator.enrolling import Enrolling
from protocol.coordinator.freezing import Freezing
from protocol.coordinator.revealing import Revealing
from protocol.coordinator.voiding import Voiding

__all__ = [
    "Checking",
    "Collecting",
    "CoordinatorPhase",
    "Ended",
    "Enrolling",
    "Freezing",
    "Lost",
    "Recovered",
    "Revealing",
    "Setting",
    "Voided",
    "Voiding",
    "Windows",
]
