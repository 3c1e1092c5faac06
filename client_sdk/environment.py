"""A member's clocks and randomness."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    """Where a member's time and randomness come from; a test passes others, to replay any hour and any failure.

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


THIS_MACHINE = Environment()
