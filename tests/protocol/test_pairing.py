from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.messages.forms import sample
from tests.support.forging import again
from tests.support.pairing import ciphertexts_for, let_pair, pairing_of
from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.messages import Ciphertexts, Manifest, Pairing
from veilsum.protocol.pairing import (
    check_ciphertexts,
    check_pairing,
    peers_of,
    recipients_of,
    senders_to,
    split_pairing,
)

# Who encapsulates to whom


def manifest_of(
    count: int, degree: int, decryptors: tuple[int, ...] | None = None, root: bytes = bytes(32)
) -> Manifest:
    """Return a manifest of m-00, m-01 and so on; without decryptors' places, all decrypt."""
    members = tuple(f"m-{place:02}" for place in range(count))
    places = range(count) if decryptors is None else decryptors
    made: Manifest = replace(
        sample(Manifest),
        members=members,
        degree=degree,
        decryptors=tuple(members[place] for place in places),
        cards_root=root,
    )
    return made


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    count = draw(st.integers(3, 24))
    sparse = [2 * half for half in range(1, count // 2) if 2 * half < count - 1]
    return manifest_of(
        count,
        draw(st.sampled_from([count - 1, *sparse])),
        tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))),
        draw(st.binary(min_size=32, max_size=32)),
    )


def share_keys(manifest: Manifest, one: str, other: str) -> bool:
    return other in manifest.graph.neighbours_of(one) or not {one, other}.isdisjoint(manifest.decryptors)


@given(manifests())
def test_every_pair_that_shares_keys_encapsulates_once(manifest: Manifest) -> None:
    sent = Counter(
        frozenset((member, other)) for member in manifest.members for other in recipients_of(manifest, member)
    )
    pairs = {frozenset(pair) for pair in combinations(manifest.members, 2) if share_keys(manifest, *pair)}
    assert sent == dict.fromkeys(pairs, 1)


@given(manifests())
def test_both_ends_agree_on_who_sends(manifest: Manifest) -> None:
    for member in manifest.members:
        recipients, senders = recipients_of(manifest, member), senders_to(manifest, member)
        assert peers_of(manifest, member) == tuple(sorted((*recipients, *senders)))
        assert senders == tuple(
            other for other in manifest.members if member in recipients_of(manifest, other)
        )
        for ids in (recipients, senders, peers_of(manifest, member)):
            assert all(low < high for low, high in pairwise(ids))


# A member's pairing


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Five members have paired under the first manifest of cohort 1, and have not been shown the others' ciphertexts."""
    federation = Federation(5)
    federation.manifest = let_pair(federation, federation.collect_cards("other-1"))
    return federation


def test_a_pairing_is_checked_in_this_order(federation: Federation) -> None:
    pairing = pairing_of(federation, "member-1")
    check_pairing(federation.roster, federation.manifest, pairing)
    wrongs: list[tuple[str, str, Callable[[Pairing], Pairing]]] = [
        ("manifest-mismatch", "stranger", lambda p: replace(p, manifest=bytes(32))),
        ("unknown-member", "stranger", lambda p: replace(p, member="stranger")),
        ("bad-signature", "member-1", lambda p: again(p, federation.keys["member-2"])),
        (
            "pairing-misshapen",
            "member-1",
            lambda p: again(p, federation.keys["member-1"], ciphertexts=p.ciphertexts[1:]),
        ),
    ]
    for at, (cause, named, _) in enumerate(wrongs):
        broken = pairing
        for _, _, change in reversed(wrongs[at:]):
            broken = change(broken)
        with refused(cause, named):
            check_pairing(federation.roster, federation.manifest, broken)


def test_a_member_of_the_roster_that_did_not_enrol_is_a_stranger_to_the_cohort() -> None:
    federation = Federation(5)
    enrolling = federation.collect_cards("other-1")
    manifest = let_pair(federation, enrolling.of_members(federation.ids[:4]))
    pairing = again(pairing_of(federation, "member-0"), federation.keys["member-4"], member="member-4")
    with refused("unknown-member", "member-4"):
        check_pairing(federation.roster, manifest, pairing)


def test_a_pairing_is_shown_ciphertext_by_ciphertext(federation: Federation) -> None:
    for member in federation.ids:
        pairing = pairing_of(federation, member)
        shown = dict(split_pairing(federation.manifest, pairing))
        assert tuple(shown) == recipients_of(federation.manifest, member)
        assert tuple(each.ciphertext for each in shown.values()) == pairing.ciphertexts
        assert {(each.member, each.signature) for each in shown.values()} == {(member, pairing.signature)}


# What one member is shown


def check(federation: Federation, ciphertexts: Ciphertexts, member: str = "member-0") -> None:
    check_ciphertexts(federation.roster, federation.manifest, member, ciphertexts)


def test_whose_ciphertexts_are_shown_is_checked_before_their_signatures(federation: Federation) -> None:
    true = ciphertexts_for(federation, "member-0")
    unsigned = replace(true, shown=(replace(true.shown[0], signature=bytes(64)), *true.shown[1:]))
    for wrong in (replace(unsigned, manifest=bytes(32)), replace(unsigned, shown=unsigned.shown[:1])):
        with refused("manifest-mismatch", "coordinator"):
            check(federation, wrong)
