from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR


def _keystream(seed: int) -> Callable[[int], bytes]:
    """AES-256-CTR bytes, the same for the same seed."""
    stream = Cipher(AES256(seed.to_bytes(32, "big")), CTR(bytes(16))).encryptor()
    return lambda count: stream.update(bytes(count))


@pytest.fixture
def keystream() -> Callable[[int], Callable[[int], bytes]]:
    return _keystream


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
