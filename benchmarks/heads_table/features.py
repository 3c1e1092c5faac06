"""The features that heads are compared on: made once for each seed, kept in a folder, known by their digest."""

import hashlib
import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from training import (
    ExtractorConfig,
    Partition,
    Split,
    dirichlet_partition,
    extract_features,
    extractor_digest,
    iid_partition,
    load_digits_dataset,
    spherefed,
    train,
)
from training.data import Dataset, load_dataset, stratified

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

MEMBERS, ALPHA, MIN_SIZE = 5, 0.5, 50
KEPT_BACK = 0.1
RANDOM_DIM, CNN_DIM = 64, 64
PUBLIC = 10_000  # images that train the CNN, and that no member holds
HELD = 11_000  # images that members hold together
TESTED = 5_000
ROUNDS, EPOCHS, RATE = 10, 1, 0.5

DATA = ("digits", "fashion-random", "fashion-cnn", "cifar-random", "cifar-cnn")
SEEDS = (0, 1, 2)
_MAKER = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[
    :8
]  # what another maker left is not taken up
IMAGES = {"fashion": "fashion-mnist", "cifar": "cifar-10-jpeg"}


@dataclass(frozen=True, eq=False)
class Features:
    """What members hold, and what heads are judged on.

    Attributes:
        name: one of `DATA`.
        seed: of split, extractor and partition.
        z: (n, l) float32 of all members, of length 1.
        y: (n,) labels.
        members: of each member, which records it contributes.
        kept_back: of each member, which it does not contribute.
        test_z: (m, l).
        test_y: (m,).
        extractor: 32 bytes that name what made them.
    """

    name: str
    seed: int
    z: Floats
    y: Labels
    members: tuple[Labels, ...]
    kept_back: tuple[Labels, ...]
    test_z: Floats
    test_y: Labels
    extractor: bytes

    @property
    def dim(self) -> int:
        return int(self.z.shape[1])

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def nonnegative(self) -> bool:
        """Whether no feature is below 0, as CCVR's ReLU and Tukey's power are made for."""
        return bool(self.z.min() >= 0)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, over all arrays: features, labels, who holds what."""
        sha = hashlib.sha256()
        for array in (self.z, self.y, self.test_z, self.test_y, *self.members, *self.kept_back):
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


def load_features(name: str, seed: int, cache: Path, folder: Path | None) -> Features:
    """From the cache, or made and put there.

    Args:
        name: one of `DATA`.
        seed: of everything.
        cache: a folder.
        folder: of the images; VEILSUM_DATA's where None.
    """
    file = cache / f"{name}-{seed}-{_MAKER}.npz"
    if not file.exists():
        started = time.process_time()
        z, y, test_z, test_y, extractor = _made(name, seed, folder)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, z=z, y=y, test_z=test_z, test_y=test_y, extractor=np.frombuffer(extractor, np.uint8))
        print(f"{name}, seed {seed}: features made in {time.process_time() - started:.0f} CPU s", flush=True)
    with np.load(file) as kept:
        arrays = {key: kept[key] for key in kept.files}
    y, rng = arrays["y"], np.random.default_rng([seed, 1])
    dealt = dirichlet_partition(y, MEMBERS, ALPHA, rng, min_size=MIN_SIZE)
    parts = [np.split(rng.permutation(own), [int(len(own) * KEPT_BACK)]) for own in dealt.members]
    return Features(
        name,
        seed,
        arrays["z"],
        y,
        tuple(contributed for _, contributed in parts),
        tuple(kept for kept, _ in parts),
        arrays["test_z"],
        arrays["test_y"],
        arrays["extractor"].tobytes(),
    )


def _made(name: str, seed: int, folder: Path | None) -> tuple[Floats, Labels, Floats, Labels, bytes]:
    if name == "digits":
        data = load_digits_dataset(seed)
        return *_of(data, lambda x: x.flatten(1).numpy()), hashlib.sha256(b"digits, raw pixels").digest()
    images, kind = name.split("-")
    whole = _images(IMAGES[images], folder)
    data = Split(whole.train, _drawn(whole.test, TESTED))
    public = stratified(data.train.y, PUBLIC, torch.Generator().manual_seed(seed))
    rest = torch.ones(len(data.train), dtype=torch.bool)
    rest[public] = False
    others = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    held = others[rest[others]][:HELD]
    members = Split(data.train.subset(held), data.test)
    if kind == "random":
        pixels = data.train.x[0].numel()
        weights = np.random.default_rng(seed).standard_normal((pixels, RANDOM_DIM))
        extractor = hashlib.sha256(b"rectified random features" + weights.tobytes()).digest()

        def rectified(x: torch.Tensor) -> Floats:
            return np.maximum(_unit(x.flatten(1).numpy().astype(np.float32) + 1e-3) @ weights, 0)

        return *_of(members, rectified), extractor
    trained = train(
        spherefed(
            ExtractorConfig.of("moon_cnn", data.train, dim=CNN_DIM),
            rounds=ROUNDS,
            local_epochs=EPOCHS,
            lr=RATE,
            seed=seed,
        ),
        Split(data.train.subset(public), _drawn(data.test, 1_000)),
        _whole(data.train.y[public].numpy()),
        progress=lambda each: print(f"  round {each.round}: {each.accuracy:.1%}", flush=True),
    ).classifier
    words = trained.extractor.config.preprocessing
    found = _of(members, lambda x: extract_features(trained, x).numpy())
    return *found, extractor_digest(trained.extractor, words)


def _drawn(data: Dataset, records: int) -> Dataset:
    """All classes alike: a publisher's test records may lie sorted."""
    return data.subset(stratified(data.y, records, torch.Generator().manual_seed(0)))


def _whole(labels: Labels) -> Partition:
    return iid_partition(labels, 1, np.random.default_rng(0))


@lru_cache(1)
def _images(name: str, folder: Path | None) -> Split:
    return load_dataset(name, folder)


def _of(data: Split, extracted: object) -> tuple[Floats, Labels, Floats, Labels]:
    assert callable(extracted)
    z, test_z = (_unit(extracted(part.x)) for part in data)
    return z, data.train.y.numpy(), test_z, data.test.y.numpy()


def _unit(rows: npt.NDArray[np.floating]) -> Floats:
    scaled: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled
