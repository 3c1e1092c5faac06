"""How fast each model trains on one thread, how the MOON CNN's time is spent, and which changes were tried.

Images are random, in CIFAR-10's shape, since a convolution's speed doesn't depend on its input. Figures are medians over epochs or
repeats of one process, in one run; on a shared machine only the ratios are meaningful.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from training.data.dataset import Dataset, shuffle_batches
from training.heads import Classifier, LearnedHead
from training.models.architectures import ARCHITECTURES, build_extractor
from training.models.config import ExtractorConfig
from training.recipe import cross_entropy
from training.results import Machine

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH = 64
QUICK = {"cnn", "feduv_cnn", "mlp", "moon_cnn"}  # ten batches of these; of others, a quarter of one


def images(records: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (records, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Dataset(x, torch.arange(records) % 10, 10, "random", mean=MEAN, std=STD)


def classifier(architecture: str, data: Dataset, **options: str) -> Classifier:
    extractor = build_extractor(ExtractorConfig.of(architecture, data, **options))
    return Classifier(extractor, LearnedHead(extractor.dim, 10), normalise=False).train()


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5, **options)


def epoch(
    model: Callable[[Tensor], Tensor], optimiser: torch.optim.Optimizer, data: Dataset, *, bf16: bool = False
) -> float:
    """Return the processor seconds of one pass."""
    started = time.process_time()
    for indices in shuffle_batches(len(data), BATCH):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = cross_entropy(model(data.x[indices]).float(), data.y[indices])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return time.process_time() - started


def rate(run: Callable[[], float], records: int, repeats: int) -> float:
    """Return images per second, the median over repeats after a warm-up."""
    run()
    return records / statistics.median(run() for _ in range(repeats))


class MatmulConv(nn.Module):
    """A convolution as unfolded patches times a matrix."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias, self.kernel = conv.weight, conv.bias, conv.kernel_size

    def forward(self, x: Tensor) -> Tensor:
        patches = functional.unfold(x, self.kernel)
        out: Tensor = self.weight.flatten(1) @ patches
        if self.bias is not None:
            out = out + self.bias[:, None]
        height, width = (side - k + 1 for side, k in zip(x.shape[2:], self.kernel, strict=True))
        return out.reshape(len(x), -1, height, width)


def unfolded(model: nn.Module) -> nn.Module:
    for name, child in list(model.named_children()):
        setattr(model, name, MatmulConv(child) if isinstance(child, nn.Conv2d) else unfolded(child))
    return model


def tried(data: Dataset, repeats: int, *, compile_: bool) -> dict[str, float]:
    """Return images per second of the MOON CNN's epoch with each change alone."""

    def plain(
        change: Callable[[nn.Module], nn.Module] = lambda m: m, *, bf16: bool = False, **options: Any
    ) -> float:
        torch.manual_seed(0)
        model = change(classifier("moon_cnn", data))
        optimiser = sgd(model, **options)
        return rate(lambda: epoch(model, optimiser, data, bf16=bf16), len(data), repeats)

    def channels_last(model: nn.Module) -> nn.Module:
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def compiled(model: nn.Module) -> nn.Module:
        model.compile()
        return model

    def as_float(repeat: int) -> float:
        scaled = Dataset(classifier("moon_cnn", data).extractor.scale_pixels(data.x), data.y, 10, "scaled")
        model = classifier("moon_cnn", scaled)
        optimiser = sgd(model)
        return rate(lambda: epoch(model, optimiser, scaled), len(data), repeat)

    results = {
        "as it is": plain(),
        "as it is, again": plain(),
        "images scaled once to float32": as_float(repeats),
        "channels last": plain(channels_last),
        "fused SGD": plain(fused=True),
        "SGD by tensor lists (foreach)": plain(foreach=True),
        "convolutions as matrix products": plain(unfolded),
        "bfloat16 autocast": plain(bf16=True),
    }
    if compile_:
        results["torch.compile"] = plain(compiled)
    return results


def where(data: Dataset) -> dict[str, float]:
    """Return the share of an epoch's processor time in each operator with 2 % or more."""
    model = classifier("moon_cnn", data)
    optimiser = sgd(model)
    epoch(model, optimiser, data)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        epoch(model, optimiser, data)
    rows = profiled.key_averages()
    total = sum(row.self_cpu_time_total for row in rows)
    shares = {row.key: row.self_cpu_time_total / total for row in rows}
    return dict(sorted(((k, round(v, 3)) for k, v in shares.items() if v >= 0.02), key=lambda kv: -kv[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--compile", action="store_true", help="torch.compile too, which needs a C++ compiler"
    )
    choices = parser.parse_args()
    torch.set_num_threads(1)
    data = images(choices.records)
    rates = {}
    for architecture in sorted(ARCHITECTURES):
        own = data.subset(torch.arange(10 * BATCH if architecture in QUICK else BATCH // 4))
        model = classifier(architecture, own)
        rates[architecture] = rate(partial(epoch, model, sgd(model), own), len(own), min(3, choices.repeats))
        print(f"{architecture:12} {rates[architecture]:9,.0f} images/s", flush=True)
    variants = tried(data, choices.repeats, compile_=choices.compile)
    base = statistics.mean([variants["as it is"], variants["as it is, again"]])
    for name, value in variants.items():
        print(f"{name:34} {value:9,.0f} images/s  {value / base:5.2f}", flush=True)
    shares = where(data)
    for name, share in shares.items():
        print(f"{share:6.1%}  {name}")
    if choices.output:
        choices.output.parent.mkdir(parents=True, exist_ok=True)
        figures = {
            "environment": Machine.describe_machine().model_dump(),
            "batch": BATCH,
            "images_per_cpu_s": rates,
            "moon_cnn_images_per_cpu_s": variants,
            "moon_cnn_shares": shares,
        }
        choices.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
