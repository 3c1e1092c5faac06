"""A classifier in one safetensors file: weights as tensors, everything else as JSON in its header.

Nothing in the file is code, so a checkpoint from a stranger can be opened.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from training.digest import extractor_digest
from training.heads import Classifier, FixedHead, LearnedHead, NormalisedHead
from training.models import ExtractorConfig

if TYPE_CHECKING:
    from pathlib import Path

_KEY = "veilsum"
_KINDS = {LearnedHead: "learned", NormalisedHead: "normalised", FixedHead: "fixed"}


class CheckpointError(ValueError):
    """A file that holds no classifier of ours, or one whose weights are not those it was saved with."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file held.

    Attributes:
        classifier: in evaluation mode.
        preprocessing: how inputs are prepared for its extractor.
        digest: `extractor_digest` of the extractor and that preprocessing, 32 bytes.
    """

    classifier: Classifier
    preprocessing: str
    digest: bytes


def save_checkpoint(classifier: Classifier, path: Path, *, preprocessing: str) -> bytes:
    """Write a classifier, and return its extractor's digest.

    Args:
        classifier: its extractor must come from `ExtractorConfig.build`.
        path: the file to write.
        preprocessing: how inputs are prepared, in words that members agree on.
    """
    digest = extractor_digest(classifier.extractor, preprocessing)
    header = {
        "extractor": asdict(classifier.extractor.config),
        "head": {
            "kind": _KINDS.get(type(classifier.head), "fixed"),
            "classes": classifier.head.out_features,
            "bias": classifier.head.bias is not None,
        },
        "normalise": classifier.normalise,
        "preprocessing": preprocessing,
        "digest": digest.hex(),
    }
    tensors = {name: tensor.contiguous() for name, tensor in classifier.state_dict().items()}
    save_file(tensors, path, metadata={_KEY: json.dumps(header, sort_keys=True)})
    return digest


def load_checkpoint(path: Path) -> Checkpoint:
    """Read what `save_checkpoint` wrote: the same function of x, bit for bit.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is none of ours, or its weights don't have the digest it states.
    """
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it's no dict
        preprocessing, stated = header["preprocessing"], header["digest"]
        # Built without storage or random draws; the file's tensors become the weights.
        with torch.device("meta"):
            classifier = _build(header)
        classifier.load_state_dict(tensors, assign=True)
    except FileNotFoundError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} holds no veilsum classifier: {error}") from error
    digest = extractor_digest(classifier.extractor, preprocessing)
    if digest.hex() != stated:
        raise CheckpointError(f"the extractor in {path} has digest {digest.hex()}, not {stated}")
    return Checkpoint(classifier.eval(), preprocessing, digest)


def _build(header: dict[str, Any]) -> Classifier:
    config = header["extractor"]
    moments = (tuple(config.get(name, ())) for name in ("mean", "std"))
    extractor = ExtractorConfig(
        config["architecture"], tuple(config["shape"]), config["options"], *moments
    ).build()
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
