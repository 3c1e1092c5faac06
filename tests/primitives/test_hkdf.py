from collections.abc import Callable
from typing import Any

from veilsum.protocol.keys import derive

Load = Callable[[str], list[dict[str, Any]]]


def test_every_vector(wycheproof: Load) -> None:
    """`derive` gives 32 bytes: a longer output begins with them (RFC 5869 §2.3), a shorter one is their beginning."""
    vectors = wycheproof("Protocol/wycheproof/hkdf_sha256_test.json")
    compared, wrong = 0, []
    for vector in vectors:
        if vector["result"] == "invalid":
            # More than 255 blocks of output: `derive` has no way to ask for that.
            assert vector["flags"] == ["SizeTooLarge"]
            continue
        secret, salt, context, output = (
            bytes.fromhex(vector[name]) for name in ("ikm", "salt", "info", "okm")
        )
        length = min(32, vector["size"])
        if derive(secret, salt=salt, context=context)[:length] != output[:length]:
            wrong.append(vector["tcId"])
        compared += 1
    assert wrong == []
    assert compared >= 83
