"""Calls of the product's functions, recorded as they happen."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def record_calls(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, noted: Callable[..., T]
) -> list[T]:
    """Record what `noted` returns of the arguments of each call of a function or method, which works as before."""
    calls, true = list[T](), getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(noted(*arguments, **named))
        return true(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls
