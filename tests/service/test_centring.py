"""A noisy mean, then noisy sums of features less that mean: two rounds, one budget."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from calibration import CentredHead
from calibration.random_features import KernelHead
from client_sdk.asked import terms_mechanism
from client_sdk.store import Store
from client_sdk.sums import verify_sums
from tests.service.asking import Consortium, records_of
from tests.service.serving import running

NOISE: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}


async def test_a_noisy_mean_centres_a_noisy_round(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        first = await consortium.open_round(statistic="mean", noise=NOISE)
        means = await consortium.contribute(first)
        mean = means[0].arrays("mean")["mean"]
        rows = np.vstack([records_of(member).features for member in range(4)])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        assert 0 < np.abs(mean - rows.mean(axis=0)).max() < 0.2
        assert means[0].record.noise != "none"

        second = await consortium.open_round(rests_on=first, noise=NOISE)
        results = await consortium.contribute(second)
        result = results[0]
        assert result.material is not None
        head = result.calibrated.head
        assert isinstance(head, CentredHead)
        np.testing.assert_array_equal(head.centre, mean)
        np.testing.assert_array_equal(load(result.material)["centre"], mean)
        records = records_of(9)
        assert (result.predict(records.features) == records.labels).mean() > 0.6
        for round_id, each in ((first, means[0]), (second, result)):
            sums = (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
            verify_sums(each, sums)
        charges = Store(tmp_path / "m-0").lineages.all()[0].charges
        mechanisms = [terms_mechanism(each.evidence.attempt) for each in (means[0], result)]
        assert [mu for _, mu in charges] == [each.mu_round for each in mechanisms if each is not None]

        third = await consortium.open_round(
            statistic="rff", parameters={"size": 16}, rests_on=first, noise=NOISE
        )
        kernel = (await consortium.contribute(third))[0]
        assert isinstance(kernel.calibrated.head, KernelHead)
        bandwidth = kernel.calibrated.head.map.bandwidth
        assert bandwidth == pytest.approx(np.sqrt(1 - mean @ mean), rel=1e-3)
        assert (kernel.predict(records.features) == records.labels).mean() > 0.6
        verify_sums(kernel, (await server.client.get(f"/v1/rounds/{third}/result/sums")).content)
        on_sums = {"statistic": "rff", "parameters": {"size": 16}, "rests_on": second, "noise": NOISE}
        drowned = await consortium.try_round(**on_sums)
        assert "a noisy round of ffc tells no bandwidth" in drowned.json()["detail"]

        asked = {"rests_on": first, "noise": {**NOISE, "nonnegative": True}}
        refused = await consortium.try_round(**asked)
        assert (refused.status_code, refused.json()["cause"]) == (422, "terms-refused")
        assert "centred and random features are below 0, too" in refused.json()["detail"]
