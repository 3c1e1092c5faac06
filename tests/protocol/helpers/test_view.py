"""What a coalition sees: everything but one keystream a client, or, with two helpers, everything."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from protocol.helpers.coordinator import Freezing, Recovered
from protocol.helpers.helper import Checked
from protocol.helpers.sealing import seed_at
from protocol.helpers.simulator import HelperFederation
from protocol.keystream import Masks
from protocol.packing import unpack
from protocol.ring import Ring

RING = Ring(32)


@pytest.fixture
def frozen(federation: HelperFederation) -> HelperFederation:
    federation.begin(federation.terms(64))
    federation.collect()
    assert isinstance(federation.run_until(Freezing), Freezing)
    return federation


def known_seeds(federation: HelperFederation, *coalition: str) -> dict[str, dict[int, bytes]]:
    """By client and index, the seeds that these helpers hold together."""
    known: dict[str, dict[int, bytes]] = {client: {} for client in federation.ids}
    for helper in coalition:
        phase = federation.phases[helper]
        assert isinstance(phase, Checked)
        for entry in phase.held:
            for place, index in enumerate(federation.attempt.seeds_of(helper)):
                known[entry.member][index] = seed_at(entry.seeds, place)
    return known


def stripped(federation: HelperFederation, client: str, seeds: dict[int, bytes]) -> Any:
    words = unpack(federation.spool[client, 0], 32, 64)
    Masks(RING, subtracted=list(seeds.values())).apply(words)
    return RING.lift(words)


@pytest.mark.parametrize("helper", range(4))
def test_the_operator_with_one_helper_lacks_one_seed_of_every_client(
    frozen: HelperFederation, helper: int
) -> None:
    known = known_seeds(frozen, f"helper-{helper}")
    for index, client in enumerate(frozen.ids):
        assert set(known[client]) == {0, 1, 2, 3} - {helper}
        left = stripped(frozen, client, known[client])
        assert not np.array_equal(left, frozen.vector(index, 64))
        # what is left is the vector under the one keystream it lacks, which spreads over the whole ring
        assert np.abs(left).max() > 1 << 28


@pytest.mark.parametrize("pair", list(combinations(range(4), 2)))
def test_the_operator_with_two_helpers_reads_every_client(
    frozen: HelperFederation, pair: tuple[int, int]
) -> None:
    known = known_seeds(frozen, *(f"helper-{place}" for place in pair))
    for index, client in enumerate(frozen.ids):
        assert np.array_equal(stripped(frozen, client, known[client]), frozen.vector(index, 64))


def test_with_ideal_keystreams_the_view_depends_on_the_vectors_only_through_their_sum(
    federation: HelperFederation,
) -> None:
    # Replace G(s_{u,0}) by a uniform R_u for every client, as a proof does. The operator with helper-0 sees the uploads less
    # what it knows, v_u = x_u + R_u, and the one sum ΣR_u that honest helpers return. For any other vectors x' of the same
    # sum, R'_u = R_u + x_u − x'_u gives the very same view, and is as likely.
    rng = np.random.default_rng(0)
    ours = np.stack([federation.vector(index, 64) for index in range(8)])
    others = rng.integers(-1000, 1000, ours.shape)
    others[-1] += (ours - others).sum(0)
    uniform = rng.integers(0, 1 << 32, ours.shape)
    shifted = (uniform + ours - others) % (1 << 32)
    view = (ours + uniform) % (1 << 32), uniform.sum(0) % (1 << 32)
    same = (others + shifted) % (1 << 32), shifted.sum(0) % (1 << 32)
    assert all(map(np.array_equal, view, same))
    assert np.array_equal(ours.sum(0), others.sum(0))


def test_uploads_left_out_of_the_set_stay_masked(federation: HelperFederation) -> None:
    federation.begin(federation.terms(64))
    federation.collect()
    phase = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    federation.phase = Freezing.begin(phase.setting, 0.0, uploads_of(federation)[:6], phase.panel)
    federation.run_until()
    outcome = federation.finish()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[:6]
    returned = [
        federation.spool[f"{source.holders[0]}/{seed}", 0]
        for seed, source in enumerate(outcome.phase.sources)
    ]
    masks: Any = sum(RING.lift(unpack(packed, 32, 64)) for packed in returned)
    uploads: Any = sum(RING.lift(unpack(federation.spool[client, 0], 32, 64)) for client in federation.ids)
    everybody = sum(federation.vector(index, 64) for index in range(8))
    assert not np.array_equal(RING.lift((uploads - masks).astype(np.uint32)), everybody)


def uploads_of(federation: HelperFederation) -> Any:
    return tuple(federation.states[client].upload for client in federation.ids)  # type: ignore[union-attr]
