"""Random streams: every draw comes from a stream derived from the experiment's seed.

A stream depends on its purpose, the round and the member, never on what ran before. So the same seed gives the same bits
whether members train one after another or in several processes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import numpy as np
import torch


class Stream(IntEnum):
    """The purpose of a draw."""

    INITIALISATION = 0
    PARTICIPATION = 1
    LOCAL_TRAINING = 2
    PARTITION = 3
    CALIBRATION = 4
    KEPT_BACK = 5
    TUNING = 6


def make_generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """Return the stream's numpy generator; `key` holds the round and the member if they apply."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *key)))


@contextmanager
def torch_seeded(seed: int, stream: Stream, *key: int) -> Iterator[None]:
    """Run a block with torch's CPU generator on the stream, and restore its state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(make_generator(seed, stream, *key).integers(2**63)))
        yield
