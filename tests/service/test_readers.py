"""The admin's list of readers: who beside operators may read the sums themselves."""

from pathlib import Path

import httpx
import numpy as np
import pytest

from calibration import FFCStatistics
from client_sdk import Result
from client_sdk.errors import PeerFault
from protocol.causes import Cause
from protocol.messages import Roster
from tests.service.asking import CLASSES, DIM, Consortium, records_of
from tests.service.serving import running


async def read(consortium: Consortium, member: str, result: Result) -> FFCStatistics:
    async with consortium.member(member) as each:
        found = await each.sums(result)
    assert isinstance(found, FFCStatistics)
    return found


async def test_readers_read_the_sums_and_nobody_else_does(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, readers=("m-1", "m-2")).begin()
        results = await consortium.contribute(await consortium.open_round())
        pooled = await read(consortium, "m-1", results[1])
        plain = FFCStatistics(DIM, CLASSES, normalise=True)
        for member in range(4):
            plain.update(records_of(member).features, records_of(member).labels)
        np.testing.assert_allclose(pooled.V, plain.V, atol=1e-6)
        np.testing.assert_array_equal(pooled.counts, plain.counts)
        with pytest.raises(PeerFault, match="have the admin sign a roster with --reader m-3") as caught:
            await read(consortium, "m-3", results[3])
        assert caught.value.cause is Cause.FORBIDDEN
        path = f"/v1/rounds/{results[0].record.round}/result/sums"
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(server.app), base_url="http://coordinator"
        ) as stranger:
            assert (await stranger.get(path)).status_code == 401
        assert (await server.client.get(path)).status_code == 200

        # Whom a newer roster does not list any more reads nothing, not even of rounds before it.
        old = consortium.roster
        await consortium.publish(
            Roster.make(
                consortium.admin,
                version_number=2,
                federation=old.federation,
                coordinator=old.coordinator,
                members=old.members,
                decryptors=(),
                extractors=old.extractors,
                readers=("m-2", "m-3"),
                withhold=0,
            )
        )
        await read(consortium, "m-2", results[2])
        for member in (1, 3):
            with pytest.raises(PeerFault, match="may not read sums"):
                await read(consortium, f"m-{member}", results[member])
