"""Train with Flower, calibrate with veilsum: a ServerApp and a ClientApp that end with the head from all members' sums.

Flower averages a small network over clients with few classes each. Then each client, which is also a member of a
veilsum federation, takes part in a run of the study that it approved, and the result replaces the network's head.

    flower-supernode … --node-config 'data="…" identity="…" url="…" admin-key="…" approve="…"'     at each member
    VEILSUM_OPERATOR_TOKEN=… flower-superlink …; flwr run . --run-config 'federation="…" study="…"'    at the operator
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from client_sdk.operator import Operator
from veilsum import Identity, Member, Policy, Records
from veilsum.cli.running import Following, find_study, this_month

DIM, CLASSES, PIXELS = 32, 10, 64
Floats = npt.NDArray[np.float64]
Network = list[Floats]
"""W1 (64, 32), b1, W2 (32, 10), b2: features are tanh(x W1 + b1)."""


def new_network(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=(PIXELS, DIM)) / 8,
        np.zeros(DIM),
        rng.normal(size=(DIM, CLASSES)) / 6,
        np.zeros(CLASSES),
    ]


def features_of(network: Network, x: Floats) -> Floats:
    found: Floats = np.tanh(x @ network[0] + network[1])
    return found


def trained(network: Network, x: Floats, y: npt.NDArray[np.int64], steps: int, rate: float = 0.3) -> Network:
    """Train by gradient descent on softmax regression over the features."""
    w1, b1, w2, b2 = (each.copy() for each in network)
    for _ in range(steps):
        z = np.tanh(x @ w1 + b1)
        scores = z @ w2 + b2
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope = (shares / shares.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]) / len(x)
        back = (slope @ w2.T) * (1 - z * z)
        w2, b2 = w2 - rate * z.T @ slope, b2 - rate * slope.sum(axis=0)
        w1, b1 = w1 - rate * x.T @ back, b1 - rate * back.sum(axis=0)
    return [w1, b1, w2, b2]


def accuracy(
    network: Network, x: Floats, y: npt.NDArray[np.int64], head: tuple[Floats, Floats] | None = None
) -> float:
    """Return the accuracy; with `head`, of a calibrated head on features of length 1, in place of the network's own head."""
    z = features_of(network, x)
    if head is None:
        return float((np.argmax(z @ network[2] + network[3], axis=1) == y).mean())
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return float((np.argmax(z @ head[0] + head[1], axis=1) == y).mean())


def data_of(path: str) -> tuple[Floats, npt.NDArray[np.int64]]:
    data = np.load(path)
    return data["x"], data["y"]


client = ClientApp()


@client.train()  # type: ignore[untyped-decorator] # Flower is untyped here
def train(message: Message, context: Context) -> Message:
    x, y = data_of(context.node_config["data"])
    network = trained(message.content["arrays"].to_numpy_ndarrays(), x, y, steps=20)
    content = {"arrays": ArrayRecord(network), "metrics": MetricRecord({"num-examples": len(x)})}
    return Message(RecordDict(content), reply_to=message)


@client.query("calibrate")  # type: ignore[untyped-decorator]
def calibrate(message: Message, context: Context) -> Message:
    """Contribute sums of the trained network's features. Flower gets only the verified head, which is public."""
    x, y = data_of(context.node_config["data"])
    z = features_of(message.content["arrays"].to_numpy_ndarrays(), x)
    with _member(context) as member:
        result = next(iter(member.join(Records(z, y), once=True)))
    kept = Path(context.node_config["identity"]) / "result"  # for `veilsum verify`
    kept.mkdir(exist_ok=True)
    result.save(kept)
    answer = {"head": result.record.head, "counted": result.counted}
    bias = np.zeros(CLASSES) if result.bias is None else result.bias.copy()
    bias[list(result.unanswered)] = -np.inf  # withheld, or without rows: never predicted
    content = {"veilsum": ConfigRecord(answer), "arrays": ArrayRecord([result.weights, bias])}
    return Message(RecordDict(content), reply_to=message)


def _member(context: Context) -> Member:
    """Make the node's member. Its identity, trust and approval come from its own configuration, never from the server's message."""
    config = context.node_config
    policy = Policy(admin_key=config["admin-key"], approved={config["approve"]})
    return Member(config["url"], Identity.load(config["identity"]), policy)


server = ServerApp()


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    done = strategy.start(grid, ArrayRecord(new_network(0)), num_rounds=int(config["rounds"]))
    network = done.arrays.to_numpy_ndarrays()
    # The nodes wait for the run while the operator's thread follows it.
    with (
        Operator(str(config["url"]), os.environ["VEILSUM_OPERATOR_TOKEN"]) as operator,
        ThreadPoolExecutor(1) as beside,
    ):
        study = find_study(operator, str(config["federation"]), str(config["study"]))
        following = Following(operator, lambda _: None)
        run = beside.submit(following.run_study, str(config["federation"]), study, this_month())
        answers = _ask(grid, "query.calibrate", RecordDict({"arrays": ArrayRecord(network)}))
        run.result()
    weights, bias = one_head(answers)
    x, y = data_of(str(config["test"]))
    outcome = {
        "trained": accuracy(network, x, y),
        "calibrated": accuracy(network, x, y, (weights, bias)),
        "heads": len({answer["veilsum"]["head"] for answer in answers}),
        "counted": sum(bool(answer["veilsum"]["counted"]) for answer in answers),
    }
    print(f"outcome: {json.dumps(outcome)}", flush=True)
    np.savez(Path(str(config["output"])), w1=network[0], b1=network[1], w2=weights, b2=bias)


def one_head(answers: list[RecordDict]) -> tuple[Floats, Floats]:
    """Return the verified weights and bias, −∞ for classes that are never predicted. Raises RuntimeError if two nodes differ."""
    sent = [(answer["veilsum"]["head"], answer["arrays"].to_numpy_ndarrays()) for answer in answers]
    heads = {(digest, *(part.tobytes() for part in parts)) for digest, parts in sent}
    if len(heads) != 1:
        raise RuntimeError(f"{len(answers)} nodes sent {len(heads)} different heads")
    weights, bias = sent[0][1]
    return weights, bias


def _ask(grid: Grid, kind: str, content: RecordDict) -> list[RecordDict]:
    """Ask all nodes at once, because they wait for each other. Raises RuntimeError if one fails or doesn't answer."""
    asked = [Message(content, dst_node_id=node, message_type=kind) for node in grid.get_node_ids()]
    replies = list(grid.send_and_receive(asked))
    failed = [reply.error.reason for reply in replies if reply.has_error()]
    if failed or len(replies) < len(asked):
        raise RuntimeError(f"{kind}: {len(asked) - len(replies)} nodes did not answer; errors: {failed}")
    return [reply.content for reply in replies]
