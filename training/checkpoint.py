"""A classifier in one safetensors file: weights as tensors, everything else as JSON in its header.

The file holds no code, so a checkpoint from a stranger is safe to open.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from training.heads import Classifier, FixedHead, LearnedHead, NormalisedHead, compute_linear_map
from training.imports import is_import_path
from training.models.architectures import build_extractor
from training.models.config import ExtractorConfig
from veilsum.system.files import sync_folder

_BYTE_ORDER = 1 if sys.byteorder == "little" else -1
_CHECKPOINT_KEY = "veilsum"
_HEAD_NAMES = {LearnedHead: "learned", NormalisedHead: "normalised", FixedHead: "fixed"}


class CheckpointError(ValueError):
    """A file that holds no veilsum classifier, or one with changed weights."""


@dataclass(frozen=True)
class Checkpoint:
    """A classifier in evaluation mode, how inputs are prepared for its extractor, and its `extractor_digest`."""

    classifier: Classifier
    preprocessing: str
    digest: bytes


def save_checkpoint(classifier: Classifier, path: Path, *, preprocessing: str) -> bytes:
    """Write a classifier with an extractor of `build_extractor`, and return the extractor's digest.

    A head of another class than ours is written as its linear map.
    """
    if type(classifier.head) not in _HEAD_NAMES and type(classifier.head).forward is not nn.Linear.forward:
        head = FixedHead(*compute_linear_map(classifier.head))
        classifier = Classifier(classifier.extractor, head, normalise=classifier.normalise)
    digest = extractor_digest(classifier.extractor, preprocessing)
    header = {
        "extractor": asdict(classifier.extractor.config),
        "head": {
            "kind": _HEAD_NAMES.get(type(classifier.head), "fixed"),
            "classes": classifier.head.out_features,
            "bias": classifier.head.bias is not None,
        },
        "normalise": classifier.normalise,
        "preprocessing": preprocessing,
        "digest": digest.hex(),
    }
    tensors = {name: tensor.contiguous() for name, tensor in classifier.state_dict().items()}
    write_tensors(path, tensors, {_CHECKPOINT_KEY: json.dumps(header, sort_keys=True)})
    return digest


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file durably; tensors go from memory to the disk without a copy. Raises OSError if the disk is full."""
    partial = path.with_name(f"{path.name}.part")
    try:
        save_file(dict(tensors), partial, metadata)
    except SafetensorError as error:
        raise OSError(f"{path} can't be written: {error}") from error
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def load_checkpoint(path: Path, *, own_code: bool = False) -> Checkpoint:
    """Read what `save_checkpoint` wrote: the same function of x, bit for bit if the head is of our classes.

    With `own_code`, import the architecture if the file names it by an import path: only for files that you trust.
    """
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()[_CHECKPOINT_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it's no dict
        preprocessing, stated = header["preprocessing"], header["digest"]
        # Without storage or random draws: the file's tensors become the weights.
        with torch.device("meta"):
            classifier = _build_classifier(header, own_code=own_code)
        classifier.load_state_dict(tensors, assign=True)
    except (FileNotFoundError, CheckpointError):
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} holds no veilsum classifier: {error}") from error
    digest = extractor_digest(classifier.extractor, preprocessing)
    if digest.hex() != stated:
        raise CheckpointError(f"the extractor in {path} has digest {digest.hex()}, not {stated}")
    return Checkpoint(classifier.eval(), preprocessing, digest)


def _build_classifier(header: dict[str, Any], *, own_code: bool) -> Classifier:
    config = header["extractor"]
    if is_import_path(config["architecture"]) and not own_code:
        raise CheckpointError(
            f"the checkpoint needs the code {config['architecture']}: pass own_code=True if you trust the file and the code"
        )
    moments = (tuple(config.get(name, ())) for name in ("mean", "std"))
    extractor = build_extractor(
        ExtractorConfig(config["architecture"], tuple(config["shape"]), config["options"], *moments)
    )
    classes, dim = header["head"]["classes"], extractor.dim
    kind, bias = header["head"]["kind"], bool(header["head"]["bias"])
    head: torch.nn.Linear
    if kind == "learned":
        head = LearnedHead(dim, classes, bias=bias)
    elif kind == "normalised":
        head = NormalisedHead(dim, classes)
    else:
        head = FixedHead(torch.zeros(classes, dim), torch.zeros(classes) if bias else None)
    return Classifier(extractor, head, normalise=header["normalise"])


def extractor_digest(extractor: nn.Module | Mapping[str, Tensor], preprocessing: str) -> bytes:
    """Hash an extractor's weights and preprocessing, so that members only sum features of the same extractor.

    SHA-256 over length-prefixed fields: a domain label, the preprocessing, then for each tensor, sorted by
    name: name, dtype, shape and raw little-endian bytes. The dict's order, memory layout and device do not matter.

    `preprocessing` says how inputs are prepared, in words that members agree on.
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
