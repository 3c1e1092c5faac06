"""One round of SecAgg+ on Flower's own deployment, for `benchmarks/live_round.py`: the server writes the seconds that the round took."""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import Grid, LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

FOLDER = Path(os.environ.get("LIVE_FOLDER", "."))


class Numbers(NumPyClient):
    """Send as many random numbers as the run's configuration says."""

    def __init__(self, count: int) -> None:
        self.count = count

    def fit(self, parameters: Any, config: Any) -> Any:
        """Return the numbers; what the server sends is ignored."""
        del parameters, config
        values = np.random.default_rng().normal(size=self.count).astype(np.float32)
        return [values], 1, {}


def client_of(context: Context) -> Any:
    return Numbers(int(context.run_config["numbers"])).to_client()


client = ClientApp(client_fn=client_of, mods=[secaggplus_mod])
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    members = int(context.run_config["members"])
    while len(list(grid.get_node_ids())) < members:
        time.sleep(0.2)
    strategy = FedAvg(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=members,
        min_available_clients=members,
        initial_parameters=ndarrays_to_parameters([np.zeros(1, np.float32)]),
    )
    secure = SecAggPlusWorkflow(
        num_shares=members,
        reconstruction_threshold=int(context.run_config["threshold"]),
        clipping_range=8.0,
        quantization_range=2**22,
        timeout=300,
    )

    def timed(grid: Grid, context: Context) -> None:
        begun_s = time.monotonic()
        secure(grid, context)
        (FOLDER / "seconds.json.new").write_text(json.dumps(time.monotonic() - begun_s))
        (FOLDER / "seconds.json.new").rename(FOLDER / "seconds.json")

    legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=strategy)
    DefaultWorkflow(fit_workflow=timed)(grid, legacy)
