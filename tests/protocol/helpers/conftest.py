from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.coordinator import CoordinatorPhase
from protocol.helpers.messages import HelperCard, HelperHeader, HelperOpening, HelperUpload
from protocol.helpers.simulator import HelperFederation
from protocol.merkle import Tree


@pytest.fixture
def federation() -> HelperFederation:
    """Eight clients: a = 2, g = n_min = 5."""
    return HelperFederation(8)


def _reopen(federation: HelperFederation, **changes: Any) -> HelperAttempt:
    opening = federation.attempt.opening
    manifest = replace(
        opening.manifest, **{name: value for name, value in changes.items() if name in vars(opening.manifest)}
    )
    values: dict[str, Any] = {"manifest": manifest, "chain": opening.chain, "terms": opening.terms}
    values |= {name: value for name, value in changes.items() if name in {"chain", "terms"}}
    key = changes.get("key", federation.coordinator)
    return HelperAttempt(changes.get("roster", federation.roster), HelperOpening.make(key, **values))


def _recard(federation: HelperFederation, place: int, **changes: Any) -> tuple[HelperCard, ...]:
    cards = list(federation.attempt.manifest.cards)
    values = {name: getattr(cards[place], name) for name in ("cohort", "member", "box_key", "expires_s")}
    values |= {name: value for name, value in changes.items() if name in values}
    key = changes.get("key", federation.keys[values["member"]])
    cards[place] = HelperCard.make(key, **values)
    return tuple(cards)


def _resign(federation: HelperFederation, upload: HelperUpload, **changes: Any) -> HelperUpload:
    upload = replace(upload, **{name: value for name, value in changes.items() if name in vars(upload)})
    values = {name: value for name, value in vars(upload.header).items() if name != "signature"}
    values |= {
        "chunk_root": Tree.of(upload.chunk_digests).root,
        "seed_root": Tree.of(upload.commitments).root,
        "box_root": Tree.of(upload.boxes).root,
    }
    values |= {name: value for name, value in changes.items() if name in values}
    return replace(upload, header=HelperHeader.make(federation.keys[upload.member], **values))


def _until(federation: HelperFederation, *forms: type[CoordinatorPhase], **changes: Any) -> Any:
    federation.begin(federation.terms(100, **changes))
    federation.collect()
    return federation.run_until(*forms)


@pytest.fixture
def reopen() -> Callable[..., HelperAttempt]:
    """The federation's attempt with some fields changed, and signed again by the coordinator or `key`."""
    return _reopen


@pytest.fixture
def recard() -> Callable[..., tuple[HelperCard, ...]]:
    """The attempt's cards with one changed, and signed again by its helper or `key`."""
    return _recard


@pytest.fixture
def resign() -> Callable[..., HelperUpload]:
    """A cheating client's upload: with some fields changed, its roots computed anew, and signed by it again."""
    return _resign


@pytest.fixture
def until() -> Callable[..., Any]:
    """Begin an attempt, let all clients speak, and drive it until the coordinator is in one of these phases."""
    return _until
