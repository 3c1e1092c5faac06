import hashlib
import json
import resource
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.checkpoint import (
    CheckpointError,
    extractor_digest,
    load_checkpoint,
    save_checkpoint,
    write_tensors,
)
from training.evaluate import with_head
from training.heads import Classifier, FixedHead, LearnedHead, NormalisedHead
from training.models.config import ExtractorConfig
from training.recipe import fedavg_recipe, spherefed_recipe

CNN = ExtractorConfig("cnn", (1, 8, 8), {"width": 8, "dim": 16})


def calibrated() -> Classifier:
    return with_head(spherefed_recipe(CNN).build(10), torch.rand(16, 10), torch.rand(10))


@pytest.mark.parametrize(
    ("classifier", "head"),
    [
        (fedavg_recipe(CNN).build(10), LearnedHead),
        (fedavg_recipe(CNN, head=NormalisedHead).build(10), NormalisedHead),
        (spherefed_recipe(CNN).build(10), FixedHead),
        (calibrated(), FixedHead),
    ],
    ids=["learned", "normalised", "orthonormal", "calibrated"],
)
def test_a_loaded_classifier_is_the_same_function(tmp_path: Path, classifier: Classifier, head: type) -> None:
    path = tmp_path / "model.safetensors"
    digest = save_checkpoint(classifier, path, preprocessing="x/16")
    checkpoint = load_checkpoint(path)
    x = torch.rand(5, 1, 8, 8)
    assert torch.equal(checkpoint.classifier(x), classifier.eval()(x))
    assert isinstance(checkpoint.classifier.head, head)
    assert checkpoint.classifier.normalise == classifier.normalise
    assert checkpoint.preprocessing == "x/16"
    assert checkpoint.digest == digest == extractor_digest(classifier.extractor, "x/16")


class LongHead(NormalisedHead):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        return 16 * super().forward(input) + 1


def test_a_head_of_ones_own_class_is_saved_as_the_linear_map_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    classifier = fedavg_recipe(CNN, head=LongHead).build(10).eval()
    save_checkpoint(classifier, path, preprocessing="x/16")
    x = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(load_checkpoint(path).classifier(x), classifier(x))


def test_weights_other_than_those_saved_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(calibrated(), path, preprocessing="x/16")
    other = tmp_path / "other.safetensors"
    save_checkpoint(spherefed_recipe(CNN, seed=1).build(10), other, preprocessing="x/16")
    tensors = load_file(path)
    tensors["extractor.layers.0.weight"] += 1
    header = other.read_bytes()
    metadata = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])["__metadata__"]
    del tensors["head.bias"]
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(CheckpointError, match="has digest"):
        load_checkpoint(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for metadata in (None, {"format": "pt"}, {"veilsum": "{}"}, {"veilsum": "no JSON"}):
        save_file({"a": torch.zeros(1)}, path, metadata=metadata)
        with pytest.raises(CheckpointError, match="classifier"):
            load_checkpoint(path)
    path.write_bytes(b"not at all")
    with pytest.raises(CheckpointError, match="classifier"):
        load_checkpoint(path)


def test_a_full_disk_is_an_error_of_the_system_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path, before = tmp_path / "model.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    write_tensors(path, {"a": torch.ones(1)})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError, match="File too large"):
            write_tensors(path, {"a": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_file(path)["a"] == 1


WEIGHTS = {
    "a": torch.tensor([1.0, -2.0]),
    "b": torch.tensor([[3, 4]]),
    "c": torch.tensor(0.5, dtype=torch.bfloat16),
}


def test_the_digest_is_that_of_these_bytes() -> None:
    # Written out by hand, each field after its length: members on other versions must agree on every byte.
    fields = (
        "76 65 69 6c 73 75 6d 2f 65 78 74 72 61 63 74 6f 72 2f 31 | 78 2f 31 36"  # veilsum/extractor/1, x/16
        "| 61 | 66 6c 6f 61 74 33 32 | 32 | 00 00 80 3f 00 00 00 c0"  # a, float32, 2, [1.0, -2.0]
        "| 62 | 69 6e 74 36 34 | 31 2c 32 | 03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00"  # b, int64, 1,2
        "| 63 | 62 66 6c 6f 61 74 31 36 | | 00 3f"  # c, bfloat16, scalar, 0.5
    )
    preimage = b"".join(len(raw).to_bytes(8, "little") + raw for raw in map(bytes.fromhex, fields.split("|")))
    assert extractor_digest(WEIGHTS, "x/16") == hashlib.sha256(preimage).digest()
