import hashlib

import torch

from training.digest import extractor_digest
from training.models import ExtractorConfig

WEIGHTS = {
    "a": torch.tensor([1.0, -2.0]),
    "b": torch.tensor([[3, 4]]),
    "c": torch.tensor(0.5, dtype=torch.bfloat16),
}


def test_the_digest_is_that_of_these_bytes() -> None:
    # Written out by hand, each field after its length: members on other versions must agree on every byte.
    fields = [
        *(
            "76 65 69 6c 73 75 6d 2f 65 78 74 72 61 63 74 6f 72 2f 31",
            "78 2f 31 36",
        ),  # veilsum/extractor/1, x/16
        *("61", "66 6c 6f 61 74 33 32", "32", "00 00 80 3f 00 00 00 c0"),  # a, float32, 2, [1.0, -2.0]
        *(
            "62",
            "69 6e 74 36 34",
            "31 2c 32",
            "03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00",
        ),  # b, int64, 1,2
        *("63", "62 66 6c 6f 61 74 31 36", "", "00 3f"),  # c, bfloat16, scalar, 0.5
    ]
    preimage = b"".join(len(raw).to_bytes(8, "little") + raw for raw in map(bytes.fromhex, fields))
    assert extractor_digest(WEIGHTS, "x/16") == hashlib.sha256(preimage).digest()


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
