import torch

from training.digest import extractor_digest
from training.models import ExtractorConfig

WEIGHTS = {
    "a": torch.tensor([1.0, -2.0]),
    "b": torch.tensor([[3, 4]]),
    "c": torch.tensor(0.5, dtype=torch.bfloat16),
}


def test_the_digest_is_pinned() -> None:
    # Written out by hand in the docstring's order; members on other versions must agree on it.
    assert extractor_digest(WEIGHTS, "x/16").hex() == "PIN"


def test_one_bit_of_one_weight_changes_it() -> None:
    flipped = WEIGHTS["a"].clone()
    flipped.view(torch.int32)[1] ^= 1
    assert extractor_digest(WEIGHTS | {"a": flipped}, "") != extractor_digest(WEIGHTS, "")


def test_the_dicts_order_and_the_memory_layout_do_not() -> None:
    matrix = torch.rand(3, 4)
    backwards = dict(reversed(WEIGHTS.items()))
    assert extractor_digest(backwards, "") == extractor_digest(WEIGHTS, "")
    assert extractor_digest({"m": matrix.T.contiguous().T}, "") == extractor_digest({"m": matrix}, "")


def test_name_shape_type_and_preprocessing_change_it() -> None:
    a = torch.zeros(4)
    digests = {
        extractor_digest(weights, preprocessing)
        for weights, preprocessing in [
            ({"a": a}, ""),
            ({"b": a}, ""),
            ({"a": a.reshape(2, 2)}, ""),
            ({"a": a.int()}, ""),
            ({"a": a}, "x/16"),
            ({}, ""),
        ]
    }
    assert len(digests) == 6
    assert {len(digest) for digest in digests} == {32}


def test_a_module_is_its_state_dict() -> None:
    module = ExtractorConfig("cnn", (1, 8, 8)).build()
    assert extractor_digest(module, "p") == extractor_digest(module.state_dict(), "p")
