"""Every data set by its name: its reader, its publisher's address, its checksums and its moments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from training.data.archives import read_cifar10, read_cifar100, read_stl10
from training.data.dataset import Dataset, Split
from training.data.folder import DataError, DataFolder, Images, data_folder
from training.data.mnist import read_emnist, read_femnist, read_mnist
from training.data.packs import read_pack
from training.data.pictures import read_cinic10, read_ham10000, read_office_home, read_pacs, read_tinyimagenet
from training.imports import import_object, is_import_path

Moments = tuple[tuple[float, ...], tuple[float, ...]]

_IMAGENET_MOMENTS: Moments = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CIFAR10_MOMENTS: Moments = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
_CIFAR100_MOMENTS: Moments = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
_CINIC10_MOMENTS: Moments = ((0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587))
_TINYIMAGENET_MOMENTS: Moments = ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821))
_MNIST_MOMENTS: Moments = ((0.1307,), (0.3081,))
_FEMNIST_MOMENTS: Moments = (
    (0.9641,),
    (0.1592,),
)  # FEMNIST as LEAF writes it is black on white, which MNIST is not
_FASHION_MNIST_MOMENTS: Moments = ((0.2860,), (0.3530,))
_GREY_MOMENTS: Moments = ((0.5,), (0.5,))

_CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
_EMNIST_PAGE = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
_SELF_PACKED = "its makers"


@dataclass(frozen=True)
class Source:
    """One data set.

    Attributes:
        moments: each channel's mean and standard deviation, in 0..1.
        checksums: by file name, the publisher's MD5, or SHA-256 of a pack.
        pack: a pack of the same records, bit for bit, used if the publisher's files are missing.
        side: pixels to which images of differing sizes are resized by default.
    """

    title: str
    classes: int
    read: Callable[[DataFolder], tuple[Images, Images]]
    moments: Moments
    url: str = _SELF_PACKED
    checksums: Mapping[str, str] = field(default_factory=dict)
    pack: str | None = None
    side: int = 96


def _packed_source(title: str, classes: int, moments: Moments, pack: str, sha256: str) -> Source:
    return Source(title, classes, partial(read_pack, name=pack), moments, checksums={pack: sha256})


SOURCES: dict[str, Source] = {
    "mnist": Source(
        "MNIST",
        10,
        read_mnist,
        _MNIST_MOMENTS,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            "mnist.npz": "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
        },
        pack="mnist.npz",
    ),
    "fashion-mnist": Source(
        "Fashion-MNIST",
        10,
        read_mnist,
        _FASHION_MNIST_MOMENTS,
        "https://github.com/zalandoresearch/fashion-mnist",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            "fashion_mnist.npz": "5b6d2c4c694a91887af8ab7d039c04f80af3c29378d731c93a538d2e831aa469",
        },
        pack="fashion_mnist.npz",
    ),
    **{
        f"emnist-{split}": Source(
            f"EMNIST {split}",
            classes,
            partial(read_emnist, split=split),
            _MNIST_MOMENTS,
            _EMNIST_PAGE,
            {"gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e"},
        )
        for split, classes in {
            "balanced": 47,
            "byclass": 62,
            "bymerge": 47,
            "digits": 10,
            "letters": 26,
        }.items()
    },
    "femnist": Source("FEMNIST", 62, read_femnist, _FEMNIST_MOMENTS, "https://github.com/TalwalkarLab/leaf"),
    "cifar-10": Source(
        "CIFAR-10",
        10,
        read_cifar10,
        _CIFAR10_MOMENTS,
        _CIFAR_PAGE,
        {
            "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
            "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        },
    ),
    "cifar-100": Source(
        "CIFAR-100",
        100,
        read_cifar100,
        _CIFAR100_MOMENTS,
        _CIFAR_PAGE,
        {
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
        },
    ),
    "stl-10": Source(
        "STL-10",
        10,
        read_stl10,
        _CIFAR10_MOMENTS,
        "https://cs.stanford.edu/~acoates/stl10/",
        {"stl10_binary.tar.gz": "91f7769df0f17e558f3565bffb0c7dfb"},
    ),
    "tinyimagenet": Source(
        "TinyImageNet",
        200,
        read_tinyimagenet,
        _TINYIMAGENET_MOMENTS,
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        {"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
        side=64,
    ),
    "cinic-10": Source(
        "CINIC-10",
        10,
        read_cinic10,
        _CINIC10_MOMENTS,
        "https://datashare.ed.ac.uk/handle/10283/3192",
        side=32,
    ),
    "pacs": Source(
        "PACS", 7, read_pacs, _IMAGENET_MOMENTS, "https://dali-dl.github.io/project_iccv2017.html"
    ),
    "office-home": Source(
        "Office-Home",
        65,
        read_office_home,
        _IMAGENET_MOMENTS,
        "https://www.hemanthdv.org/officeHomeDataset.html",
    ),
    "ham10000": Source("HAM10000", 7, read_ham10000, _IMAGENET_MOMENTS, "https://doi.org/10.7910/DVN/DBW86T"),
    "cifar-10-jpeg": _packed_source(
        "CIFAR-10 (JPEG)",
        10,
        _CIFAR10_MOMENTS,
        "cifar10_jpegpack.npz",
        "0e0d509d2bb6842bd7c8f8279ab6b98e49d70b210b5eb78cdee5536b8f763afc",
    ),
    "pacs-32": _packed_source(
        "PACS at 32 px",
        7,
        _IMAGENET_MOMENTS,
        "pacs32.npz",
        "d964a45403f21496981b514966d6dd8c8c100e52444e50228f1fe677f4f16fb5",
    ),
    "tinyimagenet-100": _packed_source(
        "TinyImageNet-100",
        100,
        _TINYIMAGENET_MOMENTS,
        "tinyimagenet100_jpegpack.npz",
        "7f1473b917e03dc4beec2df805c2e2e629f4466e9ea8db1ec8a100bea690099c",
    ),
    "spoken-digits": _packed_source(
        "Spoken digits",
        10,
        _GREY_MOMENTS,
        "fsdd_logmel32.npz",
        "9e93a8ec2422b3e2625061289835e6b7512936056a43f2f2c8ace35dfd4e50bb",
    ),
}
DIGITS_NAME = "digits"
DATASET_NAMES = tuple(sorted([DIGITS_NAME, *SOURCES]))


def load_dataset(
    name: str,
    folder: Path | None = None,
    *,
    side: int | None = None,
    seed: int = 0,
    checksums: Mapping[str, str] | None = None,
) -> Split:
    """Load a data set from files that the user has fetched; nothing is downloaded.

    `name` is one of `DATASET_NAMES`, or the import path of a function that takes the folder and returns a `Split`. `folder` is VEILSUM_DATA's by
    default; scikit-learn's digits need none. Images are resized to `side` pixels, if given. `seed` is of the digits' split: other data sets
    have a fixed one. `checksums`, by file name, take the place of the published ones.

    Raises:
        DataError: if the name is unknown, the files are missing or not as published, own records can't be used, or vectors are given a side.
    """
    if name == DIGITS_NAME:
        train, test = load_digits_dataset(seed)
    elif is_import_path(name):
        try:
            train, test = import_object(name)(folder)
        except (TypeError, ValueError) as error:
            raise DataError(f"{name}: {error}") from error
        _check_own(name, train)
        _check_own(name, test)
    elif name in SOURCES:
        train, test = _read_published(name, folder, side, checksums)
    else:
        raise DataError(f"no data set is called {name!r}; there are {', '.join(DATASET_NAMES)}")
    if side is None:
        return Split(train, test)
    if len(train.shape) != 3:
        raise DataError(
            f"{name} holds inputs of shape {train.shape}, which have no side to resize: leave it out"
        )
    return Split(train.resize_images(side), test.resize_images(side))


def _check_own(name: str, part: object) -> None:
    if not isinstance(part, Dataset):
        raise DataError(f"{name}: got {part!r}, expected a training.Split of two Dataset")
    if not len(part):
        raise DataError(f"{name}: the training or the test set has no records")
    if not part.x.isfinite().all():
        raise DataError(f"{name}: an input is not a finite number")


def _read_published(
    name: str, folder: Path | None, side: int | None, checksums: Mapping[str, str] | None
) -> tuple[Dataset, Dataset]:
    source = SOURCES[name]
    found = DataFolder(
        data_folder(folder),
        name,
        source.url,
        side or source.side,
        source.checksums if checksums is None else checksums,
    )
    # The publisher's files come first; a pack stands in only where their folder isn't there.
    packed = source.pack is not None and not found.path.is_dir() and (found.root / source.pack).is_file()
    parts = read_pack(found, source.pack) if packed and source.pack else source.read(found)
    train, test = (_make_dataset(source, part) for part in parts)
    return train, test


def load_digits_dataset(seed: int = 0) -> Split:
    """Load scikit-learn's 1,797 handwritten digits: x (n, 1, 8, 8) in 0..1, ten classes, split by class and `seed`."""
    # Imported here: worker processes get tensors and need no scikit-learn.
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    x = torch.as_tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.as_tensor(labels, dtype=torch.int64)
    train, test = train_test_split(range(len(y)), test_size=0.25, stratify=labels, random_state=seed)
    digits = Dataset(x, y, classes=10, name="digits")
    return Split(digits.subset(torch.tensor(train)), digits.subset(torch.tensor(test)))


def _make_dataset(source: Source, images: Images) -> Dataset:
    x = torch.from_numpy(np.ascontiguousarray(images.x))
    x = x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()
    mean, std = source.moments
    try:
        return Dataset(
            x,
            torch.from_numpy(images.y),
            source.classes,
            source.title,
            None if images.groups is None else torch.from_numpy(images.groups),
            images.class_names,
            images.group_names,
            mean,
            std,
        )
    except ValueError as error:
        raise DataError(f"{source.title} is not as published: {error}") from error
