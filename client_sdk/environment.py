"""A member's clocks and randomness."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from veilsum.protocol.keys import Encapsulate, encapsulate


@dataclass(frozen=True)
class Environment:
    """A member's sources of time and randomness. Tests replace them.

    Attributes:
        now_s: Unix time in seconds, for expiry.
        monotonic_s: a monotonic clock in seconds, for timeouts.
        random_bytes: secret randomness, from the operating system except in tests.
        jitter: a number in [0, 1) that spreads members' retries.
        encapsulate: draws and encapsulates the secrets of pairs.
    """

    now_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    random_bytes: Callable[[int], bytes] = os.urandom
    jitter: Callable[[], float] = random.random
    encapsulate: Encapsulate = encapsulate


THIS_MACHINE = Environment()
