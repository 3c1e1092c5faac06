"""Randomness by name: every draw comes from a stream derived from the experiment's one seed.

A stream depends on what it is for, the round and the member, never on what ran before it. That is why the
same seed gives the same bits whether members train one after another or over several processes.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stream(IntEnum):
    """What a draw is for."""

    INITIALISATION = 0
    PARTICIPATION = 1
    LOCAL_TRAINING = 2
    PARTITION = 3
    CALIBRATION = 4
    KEPT_BACK = 5
    TUNING = 6


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """The stream's numpy generator; `key` holds the round and the member where they apply."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


@contextmanager
def torch_seeded(seed: int, stream: Stream, *key: int) -> Iterator[None]:
    """Run a block with torch's CPU generator on the stream, and give the caller's state back after it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator(seed, stream, *key).integers(2**63)))
        yield
