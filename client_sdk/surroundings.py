"""Clock and randomness of this machine, passed in so that a test can replay any hour and any failure."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Surroundings:
    """Where a member's time and randomness come from.

    Attributes:
        now_s: Unix time in seconds, for expiry.
        monotonic_s: seconds that only ever grow, for patience.
        random_bytes: secret randomness; never anything but the operating system's outside a test.
        jitter: a number in [0, 1), so that members don't all retry in the same moment.
    """

    now_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    random_bytes: Callable[[int], bytes] = os.urandom
    jitter: Callable[[], float] = random.random


THIS_MACHINE = Surroundings()
