"""A member's part in a noisy round does not depend on what its records are: nothing of them is refused, and what fails is paid for."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.lattice import FeaturesLattice
from calibration.layout import Layout
from client_sdk import Policy, Records, Result
from client_sdk.asked import terms_mechanism
from client_sdk.errors import LineageError
from client_sdk.store import Store
from tests.service.asking import CLASSES, Consortium, records_of
from tests.service.serving import running

NOISY: dict[str, Any] = {"noise": {"epsilon": 2.0, "delta": 1e-5}}
CAP = 40


def odd_records(member: int, *, held_out: bool = False) -> Records:
    """60 records, more than the cap, some of which are none; of the first member none is of length 1."""
    records = records_of(member, held_out=held_out)
    features, labels = records.features.copy(), records.labels.copy()
    features[0], features[1], features[2, 1], labels[3], labels[4] = 0, np.nan, np.inf, CLASSES, -1
    return Records(features, labels, normalise=member > 0)


async def test_a_member_with_too_many_records_some_of_them_none_takes_part_as_any_other(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "data") as server:
        consortium = Consortium(tmp_path, server, records=odd_records, records_cap=CAP)
        await consortium.begin()
        round_id = await consortium.open_round(**NOISY)
        results = await consortium.contribute(round_id)
        terms = results[0].evidence.opening.terms
        mechanism = terms_mechanism(results[0].evidence.attempt)
        assert mechanism is not None
        lattice, exact = FeaturesLattice(terms.lattice_bits), np.zeros(terms.elements, np.int64)
        for index in range(4):
            records = records_of(index)
            own = consortium.collected(results[0], Records(records.features[5:], records.labels[5:], True))
            most = CAP * 4**terms.lattice_bits
            exact += own.vector(lattice).clip(-most, most)
        noise = (await consortium.sums(round_id) - exact)[Layout.from_bytes(terms.layout).slices["V"]]
        share = mechanism.shares[0]
        assert share.diagonal is not None
        assert 0 < np.abs(noise).max() < 8 * np.sqrt(4 * share.diagonal)


async def test_an_upload_does_not_say_whether_records_changed_since_the_last_noisy_round(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()

        async def contribute(round_id: str, left: int) -> list[Result]:
            async def part(index: int, member: str) -> Result:
                own = records_of(index)
                kept = Records(own.features[:left], own.labels[:left], normalise=True)
                async with consortium.member(member) as each:
                    return await each.contribute(round_id, kept, lineage="main")

            return await asyncio.gather(*(part(i, m) for i, m in enumerate(consortium.ids)))

        seen = []
        for left in (60, 59):  # one record taken back: of exact sums at least 10
            results = await contribute(await consortium.open_round(**NOISY), left)
            headers = [result.evidence.header for result in results]
            seen.append([header.records for header in headers if header is not None])
        assert seen[0] == seen[1]
        assert len(set(seen[0])) == 4
        [lineage] = Store(tmp_path / "m-0").lineages.all()
        assert len({version.tag for version in lineage.versions}) == 2


async def test_what_fails_because_of_records_has_been_paid_for(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, {"mu_budget": 0.6}).begin()
        round_id = await consortium.open_round(**NOISY)

        def unreadable(wanted: Any) -> Any:
            raise OSError(f"row 7 of {wanted.dim} features is not to be read")

        for _ in range(2):  # once, however often it is tried
            async with consortium.member("m-0") as member:
                with pytest.raises(OSError, match="row 7 of 6"):
                    await member.contribute(round_id, unreadable, lineage="main")
            [lineage] = Store(tmp_path / "m-0").lineages.all()
            assert [len(lineage.charges), lineage.versions] == [1, ()]
        assert 0 < lineage.budget(Policy(admin_key=bytes(32), mu_budget=0.6)).mu <= 0.6
        # taken part in after all, it is charged once; the next is over the budget
        results = await consortium.contribute(round_id)
        [lineage] = Store(tmp_path / "m-0").lineages.all()
        assert [context for context, _ in lineage.charges] == [results[0].evidence.attempt.context]
        second = await consortium.open_round(**NOISY)
        async with consortium.member("m-0") as member:
            with pytest.raises(LineageError, match="privacy budget: main has spent"):
                await member.contribute(second, unreadable, lineage="main")
