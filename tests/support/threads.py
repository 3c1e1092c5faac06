"""Run work beside a test on daemon threads: work that waits for ever must not keep a failed run from ending."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVar("Given")

PATIENCE_S = 120.0


def later(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Start a call on a daemon thread of its own. An executor's threads are waited for even after a failure."""
    outcome = Future[T]()

    def run() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def together(function: Callable[[Given], T], given: Iterable[Given]) -> list[T]:
    """Call the function for every value at once; return the results in order."""
    return [each.result(PATIENCE_S) for each in [later(function, value) for value in given]]
