"""Packs of JPEGs, and the blocks of small networks that turn pictures into features."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

Array = npt.NDArray[Any]


def load_pictures(path: Path, split: str) -> tuple[Array, Array]:
    """Return images (n, height, width, 3) uint8 from a pack of JPEG bodies with shared headers, and labels."""
    with np.load(path) as pack:
        ends, heads = pack["head_offsets"], pack["heads"]
        headers = [heads[a:b].tobytes() for a, b in itertools.pairwise(ends)]
        at, body, which = pack[f"offsets_{split}"], pack[f"body_{split}"].tobytes(), pack[f"head_id_{split}"]
        pictures = [
            np.asarray(Image.open(io.BytesIO(headers[head] + body[start:end])).convert("RGB"))
            for head, start, end in zip(which, at[:-1], at[1:], strict=True)
        ]
        return np.stack(pictures), pack[f"y_{split}"].astype(np.int64)


def make_block(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(max(4, min(8, outputs // 8)), outputs),
        nn.ReLU(),
    ]


def to_tensor(pictures: Array) -> torch.Tensor:
    scaled = (pictures.astype(np.float32) / 255 - 0.45) / 0.25
    return torch.from_numpy(scaled).permute(0, 3, 1, 2).contiguous()


def fit_network(
    net: nn.Module, head: nn.Module, pictures: Array, labels: Array, *, epochs: int, batches: int, rate: float
) -> None:
    """Train a network and its head by Adam on cross-entropy, in `batches` batches an epoch."""
    optimiser = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=rate)
    inputs, targets = to_tensor(pictures), torch.from_numpy(labels)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets)).chunk(batches):
            loss = functional.cross_entropy(head(net(inputs[chosen])), targets[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
