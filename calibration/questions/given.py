"""A head as material: what a round judges, or goes on from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from calibration.errors import LayoutMismatch
from calibration.head_file import arrays_of, form_of, head_from

if TYPE_CHECKING:
    from calibration.head import Head
    from calibration.questions.base import Arrays, Question

_EMPTY = "empty_classes"


def given(head: Head) -> tuple[str, Arrays]:
    """A head's form, for the layout's parameter `head`, and its arrays, for the material."""
    arrays = {**arrays_of(head), _EMPTY: np.asarray(head.empty_classes, np.int64)}
    return json.dumps(form_of(head), sort_keys=True), arrays


def head_given(asked: Question, *beside: str) -> Head:
    """The head that a question's material holds, `beside` other arrays; LayoutMismatch where it holds none of its size."""
    try:
        form = json.loads(str(asked.layout.parameter("head")))
    except ValueError as error:
        raise LayoutMismatch("the layout does not say of what kind the head is") from error
    empty = asked.material.get(_EMPTY)
    if empty is None or empty.ndim != 1 or empty.dtype != np.int64 or not isinstance(form, dict):
        raise LayoutMismatch("the head that this round takes up is none")
    arrays = {name: array for name, array in asked.material.items() if name not in {_EMPTY, *beside}}
    head = head_from(arrays, form, tuple(empty.tolist()))
    if (head.dim, head.classes) != (asked.dim, asked.classes):
        raise LayoutMismatch("the head that this round takes up has other features or classes than it says")
    return head
