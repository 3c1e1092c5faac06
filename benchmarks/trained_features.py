"""Features of a small network that has seen none of the problem's records: trained on TinyImageNet, applied to other images.

Reads the packs of JPEGs and arrays that `benchmarks.noisy_recipes` names, and writes NAME.npz with rows, labels, test and test_labels.

    .venv/bin/python -m benchmarks.trained_features --data FOLDER --output FEATURES
"""

import argparse
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

EPOCHS, BATCH = 3, 128

Array = npt.NDArray[Any]


def images(path: Path, split: str) -> tuple[Array, Array]:
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


def block(inputs: int, outputs: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(max(4, min(8, outputs // 8)), outputs),
        nn.ReLU(),
    ]


def network() -> nn.Sequential:
    """Make a network from 32 × 32 pixels to 256 features."""
    layers = [
        *block(3, 32),
        nn.MaxPool2d(2),
        *block(32, 64),
        nn.MaxPool2d(2),
        *block(64, 128),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(*layers, *block(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def tensor(pictures: Array) -> torch.Tensor:
    scaled = (pictures.astype(np.float32) / 255 - 0.45) / 0.25
    return torch.from_numpy(scaled).permute(0, 3, 1, 2).contiguous()


def trained(pictures: torch.Tensor, labels: torch.Tensor) -> nn.Sequential:
    torch.manual_seed(0)
    net, head = network(), nn.Linear(256, int(labels.max()) + 1)
    parameters = [*net.parameters(), *head.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = EPOCHS * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=steps)
    for _ in range(EPOCHS):
        for number, chosen in enumerate(torch.randperm(len(labels)).chunk(-(-len(labels) // BATCH))):
            batch = pictures[chosen].flip(3) if number % 2 else pictures[chosen]
            loss = functional.cross_entropy(head(net(batch)), labels[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return net


@torch.no_grad()
def features(net: nn.Sequential, pictures: Array) -> Array:
    if pictures.ndim == 3:  # grey, up to 32 pixels
        edge = (32 - pictures.shape[1]) // 2
        pictures = np.repeat(np.pad(pictures, ((0, 0), (edge, edge), (edge, edge)))[..., None], 3, axis=-1)
    return np.concatenate(
        [net(tensor(part)).numpy() for part in np.array_split(pictures, -(-len(pictures) // 512))]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.output.mkdir(parents=True, exist_ok=True)
    pictures, labels = images(given.data / "tinyimagenet100_jpegpack.npz", "train")
    halved = pictures.reshape(len(pictures), 32, 2, 32, 2, 3).mean(axis=(2, 4), dtype=np.float32)
    net = trained(tensor(halved), torch.from_numpy(labels))

    def write(name: str, rows: Array, own: Array, test: Array, truth: Array) -> None:
        found, judged = features(net, rows), features(net, test)
        np.savez(given.output / f"{name}.npz", rows=found, labels=own, test=judged, test_labels=truth)

    for name in ("fashion_mnist", "mnist"):
        with np.load(given.data / f"{name}.npz") as file:
            write(name, file["x_train"], file["y_train"], file["x_test"], file["y_test"])
    packed = given.data / "cifar10_jpegpack.npz"
    test, truth = images(packed, "test")  # sorted by class
    order = np.random.default_rng(1).permutation(len(test))
    write("cifar10", *images(packed, "train"), test[order], truth[order])
    for name, marks, last in (("pacs32", "is_test", 0), ("fsdd_logmel32", "index", 4)):
        with np.load(given.data / f"{name}.npz") as file:
            held = file[marks].astype(bool) if marks == "is_test" else file[marks] <= last
            write(
                name.split("32")[0].split("_")[0],
                file["x"][~held],
                file["y"][~held],
                file["x"][held],
                file["y"][held],
            )


if __name__ == "__main__":
    main()
