"""The five bugs in the noise of other layouts than FFC's: the best distinguisher for one record flags each, and the mechanism as it is passes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from calibration import FeaturesLattice, Layout
from calibration.collected import Collected
from calibration.privacy import Mechanism, MemberNoise, NoiseTerms, Share, estimate_mu
from calibration.privacy.mechanism import diagonal_of, kind_of
from calibration.questions import Question, Wish, ask, question
from protocol.keystream import Keystream

DIM, CLASSES, RELEASES = 6, 2, 2_000
LATTICE = FeaturesLattice(10)
ASKED: dict[str, dict[str, Any]] = {
    "ccvr": {},
    "ffc": {"publish": "lda"},
}


@cache
def posed(name: str) -> tuple[Question, Mechanism, Any]:
    """The question, its mechanism of 3 honest members of 4, and what one record of length 1 adds to the sum."""
    asked = question(name, ask(name, Wish(DIM, CLASSES, ASKED[name], noisy=True)).layout)
    noise = NoiseTerms(1.0, 1.0)
    mechanism = noise.mechanism(asked, LATTICE, members=4, survivors_min=4, colluders=1)
    own = Collected(asked, LATTICE, noise=noise)
    own.update(np.ones((1, DIM)), np.array([1]))
    return asked, mechanism, own.vector(LATTICE)


def variances(mechanism: Mechanism, shares: tuple[Share, ...]) -> Any:
    """(elements,) of one share."""
    found = np.empty(mechanism.layout.elements)
    for block, share in zip(mechanism.layout.blocks, shares, strict=True):
        part = found[mechanism.layout.slices[block.name]]
        part[:] = share.variance
        if share.diagonal is not None:
            part[diagonal_of(block.shape[0])] = share.diagonal
    return found


def estimated(name: str, members: list[tuple[Share, ...]]) -> Any:
    """μ̂ of sums whose members draw these shares, by whoever knows them."""
    _, mechanism, record = posed(name)
    known = np.maximum(sum(variances(mechanism, own) for own in members), 1.0)
    layout, weights, scores = mechanism.layout, record / known, []
    for having in (0, 1):
        seen = np.full(RELEASES, float(having * record @ weights))
        for index, shares in enumerate(members):
            source = Keystream(bytes([having, index]) * 16)
            for block, share in zip(layout.blocks, shares, strict=True):
                place = layout.slices[block.name]
                many = Layout(
                    tuple(replace(block, name=f"{block.name}-{number}") for number in range(RELEASES))
                )
                same = tuple(replace(share, block=each.name) for each in many.blocks)
                noise = np.zeros(many.elements, np.int64)
                MemberNoise(many, same, source).add_to(noise)
                seen += noise.reshape(RELEASES, -1) @ weights[place]
        scores.append(seen)
    return estimate_mu(*scores)


def scaled(
    shares: tuple[Share, ...], factor: float, *kinds: str, diagonal: float | None = None
) -> tuple[Share, ...]:
    """Shares with the variances of some kinds of blocks changed."""
    return tuple(
        replace(
            share,
            variance=int(share.variance * factor),
            diagonal=None
            if share.diagonal is None
            else int(share.diagonal * (factor if diagonal is None else diagonal)),
        )
        if kind_of(share.block) in kinds
        else share
        for share in shares
    )


@pytest.mark.parametrize("name", ASKED)
def test_what_is_promised_of_each_layout_is_what_is_seen(name: str) -> None:
    _, mechanism, record = posed(name)
    assert np.linalg.norm(record * mechanism.weights()) == pytest.approx(mechanism.sensitivity, rel=0.01)
    assert estimated(name, [mechanism.shares] * 3).fault(mechanism.mu_round) is None


@pytest.mark.parametrize("name", ASKED)
def test_each_bug_is_flagged(name: str) -> None:
    _, mechanism, _ = posed(name)
    whole = mechanism.shares
    kinds = {kind_of(share.block) for share in whole}
    bugs = {
        "half of sigma": [scaled(whole, 1 / 4, *kinds)] * 3,
        "a forgotten root of 2": [scaled(whole, 1 / 2, *kinds)] * 3,
        "a member without its share": [whole] * 2,
    }
    if any(share.diagonal is not None for share in whole):
        symmetric = kinds & {"M", "V"}
        bugs["off the diagonal halved"] = [scaled(whole, 1 / 2, *symmetric, diagonal=1)] * 3
    if len(kinds) > 1:
        last = kind_of(whole[1].block)
        bugs["no noise on one block"] = [scaled(whole, 0, last)] * 3
    for bug, members in bugs.items():
        fault = estimated(name, members).fault(mechanism.mu_round)
        assert fault is not None, bug
        assert fault.startswith("too little noise"), bug
