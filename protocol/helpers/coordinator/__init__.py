"""The coordinator's side of the helpers' mode: one class a phase, each a value without I/O or clock."""

from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting, HelperWindows
from protocol.helpers.coordinator.checking import Checking
from protocol.helpers.coordinator.collecting import Collecting
from protocol.helpers.coordinator.ended import Ended, Lost, Recovered, Source, Voided
from protocol.helpers.coordinator.enrolling import Enrolling
from protocol.helpers.coordinator.freezing import Freezing
from protocol.helpers.coordinator.summing import Summing
from protocol.helpers.coordinator.voiding import Voiding

__all__ = [
    "Checking",
    "Collecting",
    "CoordinatorPhase",
    "Ended",
    "Enrolling",
    "Freezing",
    "HelperSetting",
    "HelperWindows",
    "Lost",
    "Recovered",
    "Source",
    "Summing",
    "Voided",
    "Voiding",
]
