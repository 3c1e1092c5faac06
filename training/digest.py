"""A fingerprint of the feature extractor, so that members sum features of the same f or none at all."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Mapping

_BYTE_ORDER = 1 if sys.byteorder == "little" else -1


def extractor_digest(extractor: nn.Module | Mapping[str, Tensor], preprocessing: str) -> bytes:
    """32 bytes that change with any bit of the weights or of how inputs are prepared.

    SHA-256 over length-prefixed fields: a domain label, the preprocessing, then for each tensor, sorted by
    name: name, dtype, shape and raw little-endian bytes. Neither the dict's order, nor memory layout, nor
    the device matters.

    Args:
        extractor: a module, or its state dict.
        preprocessing: what is done to a record before the extractor sees it, in words that members agree on.
    """
    weights = extractor.state_dict() if isinstance(extractor, nn.Module) else extractor
    sha = hashlib.sha256()

    def put(field: bytes) -> None:
        sha.update(len(field).to_bytes(8, "little"))
        sha.update(field)

    put(b"veilsum/extractor/1")
    put(preprocessing.encode())
    for name in sorted(weights):
        tensor = weights[name]
        put(name.encode())
        put(str(tensor.dtype).removeprefix("torch.").encode())
        put(",".join(map(str, tensor.shape)).encode())
        put(_little_endian(tensor))
    return sha.digest()


def _little_endian(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    # Viewed as bytes in torch: numpy has no bfloat16.
    raw = flat.view(torch.uint8).reshape(-1, flat.element_size()).numpy()
    return raw[:, ::_BYTE_ORDER].tobytes()
