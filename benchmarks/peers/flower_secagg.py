"""Flower's secure aggregation, measured: one round's CPU time, bytes and memory, printed as one line of JSON.

Flower's own code does the work: the four stages of `SecAggPlusWorkflow` on the server's side and
`secaggplus_mod` on each client's. Between them, a grid in this process carries every message as its protobuf
bytes. Training returns a prepared vector, so only the secure sum is timed.
A dropped client answers the first two stages and never uploads: the dropout that Flower can repair.

Run it with the peers' interpreter, which `make bench-peers` builds:

    benchmarks/peers/.venv/bin/python benchmarks/peers/flower_secagg.py --members 10 --threshold 6 --lost 0.1
    benchmarks/peers/.venv/bin/python benchmarks/peers/flower_secagg.py --members 100 --shares 21 --threshold 11
"""

import argparse
import ctypes
import gc
import json
import logging
import platform
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flwr
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app.error import Error
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.compat.common import recorddict_compat as compat
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.supercore.task_identity import TaskIdentity

ELEMENTS = 947_940  # V's triangle at l=1280, U at 100 classes, the counts
STAGES = ("setup", "share", "collect", "unmask")
# Flower's defaults, named because the error bound follows from them.
CLIPPING_RANGE = 8.0
QUANTISATION_RANGE = 2**22
FULL_WEIGHT = 1_000  # every member has the largest weight, so the weighted mean is the sum over |S|
STEP = 2 * CLIPPING_RANGE / QUANTISATION_RANGE
ERROR_BOUND = (
    1.25 * STEP
)  # random rounding moves an element by less than a step, float32 by an eighth at most
PROBED_CLIENTS = 3


class RoundError(Exception):
    """The round can't run with these arguments, it halted, or its result is wrong."""


class ResidentMemory:
    """This process's resident memory in bytes; None if the kernel doesn't allow a reset of its peak."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def release(self) -> None:
        """Return freed pages to the system: kept ones would hide a peak reached by reusing them."""
        gc.collect()
        if hasattr(self._libc, "malloc_trim"):
            self._libc.malloc_trim(0)

    def restart(self) -> int | None:
        """Reset the peak; return the current resident memory."""
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            return self._read("VmRSS")
        except OSError:
            return None

    def peak_above(self, base: int | None) -> int | None:
        """Return the peak since the last restart, minus `base`."""
        return None if base is None else self._read("VmHWM") - base

    @staticmethod
    def _read(field: str) -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


class NoTraining:
    """The strategy: every client is sampled, no model is sent, and the secure sum's result stays unchanged."""

    def __init__(self, nodes: list[int]) -> None:
        self._proxies = [SimpleNamespace(node_id=node) for node in nodes]

    def configure_fit(self, *_: object) -> list[tuple[SimpleNamespace, FitIns]]:
        return [(proxy, FitIns(ndarrays_to_parameters([]), {})) for proxy in self._proxies]

    def aggregate_fit(self, _round: int, results: list[Any], _failures: object) -> tuple[Any, dict[str, Any]]:
        return results[0][1].parameters, {}


class InMemoryGrid:
    """Connect the workflow to its clients, and measure each client's part.

    The server's CPU time is its stage's own minus `cpu_s`, the time spent here. The first clients to
    upload have their memory probed, which slows them, so they are left out of the CPU figures.
    """

    def __init__(self, nodes: list[int], lost: set[int], elements: int, seed: int) -> None:
        self.cpu_s = 0.0
        self.client_cpu_s: dict[int, dict[str, float]] = defaultdict(dict)
        self.upload_bytes: dict[int, int] = defaultdict(int)
        self.download_bytes: dict[int, int] = defaultdict(int)
        self.client_peak_bytes: dict[int, int | None] = {}
        self.server_peak_bytes: int | None = 0
        self.uploaded_sum = np.zeros(elements)  # float64 sum in the clear, to check the aggregate
        self._probes = min(PROBED_CLIENTS, (len(nodes) - len(lost)) // 2)
        self._lost = lost
        self._index = {node: index for index, node in enumerate(nodes)}
        self._contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in nodes}
        self._stages = iter(STAGES)
        self._seed = seed
        self._memory = ResidentMemory()
        self._memory.release()
        self._idle_bytes = self._memory.restart()

    def note_server_peak(self) -> None:
        """Record the peak since a client last ran: it is the server's, plus every client's small state."""
        peak = self._memory.peak_above(self._idle_bytes)
        self.server_peak_bytes = None if peak is None else max(self.server_peak_bytes or 0, peak)

    def send_and_receive(self, messages: list[Message], **_: object) -> list[Message]:
        """Carry one stage's messages to the clients, and their replies back, as the workflow expects."""
        entered_s = time.process_time()
        self.note_server_peak()
        stage = next(self._stages)
        replies = [self._exchange(message, stage) for message in messages]
        self._memory.restart()
        self.cpu_s += time.process_time() - entered_s
        return replies

    def _exchange(self, message: Message, stage: str) -> Message:
        node = message.metadata.dst_node_id
        if node in self._lost and stage in {"collect", "unmask"}:
            return Message(Error(0, "lost"), reply_to=message)

        # The workflow shares one content among many messages and the client pops from it, so pass bytes only.
        request = recorddict_to_proto(message.content).SerializeToString()
        self.download_bytes[node] += len(request)
        received = Message(
            recorddict_from_proto(RecordDictProto.FromString(request)),
            dst_node_id=node,
            message_type=message.metadata.message_type,
            group_id=message.metadata.group_id,
        )
        result = self._trained(node) if stage == "collect" else None

        def train(request: Message, _: Context) -> Message:
            return Message(compat.fitres_to_recorddict(result, keep_input=True), reply_to=request)

        probed = stage == "collect" and len(self.client_peak_bytes) < self._probes
        if probed:
            self._memory.release()
        resident = self._memory.restart()
        started_s = time.process_time()
        reply = secaggplus_mod(received, self._contexts[node], train)
        self.client_cpu_s[node][stage] = time.process_time() - started_s
        if probed:
            self.client_peak_bytes[node] = self._memory.peak_above(resident)

        upload = recorddict_to_proto(reply.content).SerializeToString()
        self.upload_bytes[node] += len(upload)
        reply.content = recorddict_from_proto(RecordDictProto.FromString(upload))
        return reply

    def _trained(self, node: int) -> FitRes:
        """Return a different vector for each client, so that a wrong mask or survivor set gives a wrong sum."""
        rng = np.random.default_rng((self._seed, self._index[node]))
        vector = 2 * rng.random(self.uploaded_sum.size, dtype=np.float32) - 1
        self.uploaded_sum += vector
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), FULL_WEIGHT, {})


def run_round(
    members: int, shares: int | None, threshold: int, lost: int, elements: int, seed: int
) -> dict[str, Any]:
    """Run one secure sum: `shares` for each member and secret (None: one for every member), `threshold` of them to recover."""
    # The workflow shuffles its ring of neighbours with the module's generator.
    random.seed(seed)
    nodes = random.sample(range(1, 2**62), members)
    vanishing = set(nodes[:lost])
    context = LegacyContext(Context(1, 0, {}, RecordDict(), {}), strategy=NoTraining(nodes))
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({"current_round": 1})
    context.state.array_records[MAIN_PARAMS_RECORD] = ArrayRecord()
    workflow = SecAggPlusWorkflow(
        1.0 if shares is None else shares,
        threshold,
        max_weight=float(FULL_WEIGHT),
        clipping_range=CLIPPING_RANGE,
        quantization_range=QUANTISATION_RANGE,
    )
    steps = (
        workflow.setup_stage,
        workflow.share_keys_stage,
        workflow.collect_masked_vectors_stage,
        workflow.unmask_stage,
    )
    state = WorkflowState()
    grid = InMemoryGrid(nodes, vanishing, elements, seed)
    server_cpu_s = {}
    for stage, step in zip(STAGES, steps, strict=True):
        elsewhere_s, started_s = grid.cpu_s, time.process_time()
        went_on = step(grid, context, state)
        server_cpu_s[stage] = time.process_time() - started_s - (grid.cpu_s - elsewhere_s)
        if not went_on:
            raise RoundError(f"Flower halted in its stage {stage!r}: some member has too few shares left")
    grid.note_server_peak()

    aggregate = compat.arrayrecord_to_parameters(context.state.array_records[MAIN_PARAMS_RECORD], True)
    error = np.max(np.abs(parameters_to_ndarrays(aggregate)[0] - grid.uploaded_sum / (members - lost)))
    if not error <= ERROR_BOUND:
        raise RoundError(f"the mean is off by {error:.3g}; quantisation explains {ERROR_BOUND:.3g}")

    survivors = [node for node in nodes if node not in vanishing]
    timed = [grid.client_cpu_s[node] for node in survivors if node not in grid.client_peak_bytes]
    peaks = [peak for peak in grid.client_peak_bytes.values() if peak is not None]
    return {
        "client_cpu_s": statistics.median(sum(stages.values()) for stages in timed),
        "client_stage_cpu_s": {name: statistics.median(stages[name] for stages in timed) for name in STAGES},
        "client_upload_bytes": statistics.median_high(grid.upload_bytes[node] for node in survivors),
        "client_download_bytes": statistics.median_high(grid.download_bytes[node] for node in survivors),
        "client_peak_bytes": statistics.median_high(peaks) if peaks else None,
        "server_cpu_s": sum(server_cpu_s.values()),
        "server_stage_cpu_s": server_cpu_s,
        "server_peak_bytes": grid.server_peak_bytes,
        "max_abs_error": float(error),
    }


def median_of(rounds: list[Any]) -> Any:
    """Return the median of each figure over the rounds; None if a round has none."""
    first = rounds[0]
    if isinstance(first, dict):
        return {name: median_of([figures[name] for figures in rounds]) for name in first}
    if None in rounds:
        return None
    return (statistics.median if isinstance(first, float) else statistics.median_high)(rounds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--members", type=int, default=10, metavar="N")
    parser.add_argument(
        "--shares", default="complete", metavar="K", help="'complete' or an odd number below N"
    )
    parser.add_argument(
        "--threshold", type=int, metavar="t", help="default: the smallest majority of the shares"
    )
    parser.add_argument("--lost", type=float, default=0.0, metavar="FRACTION", help="of the members, rounded")
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="R", help="rounds; each figure is their median"
    )
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.members < 2:
        parser.error("--members: a sum needs at least 2")
    if given.shares == "complete":
        given.shares = None
    elif (
        not given.shares.isdecimal()
        or not 3 <= int(given.shares) < given.members
        or int(given.shares) % 2 == 0
    ):
        # Flower tells its clients an even number and then adds one itself: there would not be enough shares.
        parser.error("--shares: 'complete', or an odd number from 3 and below --members")
    else:
        given.shares = int(given.shares)
    count = given.shares or given.members
    given.threshold = count // 2 + 1 if given.threshold is None else given.threshold
    if not 2 <= given.threshold <= (count - 1 if given.shares else count):
        parser.error(f"--threshold: from 2, and no more than the {count} shares allow")
    if not 0 <= given.lost < 1 or given.members - round(given.lost * given.members) < given.threshold:
        parser.error("--lost: fewer members would remain than the threshold")
    if given.repeats < 1 or given.elements < 1:
        parser.error("--repeats and --elements: at least 1")
    return given


def main() -> None:
    given = parse_arguments()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # every Message needs one
    lost = round(given.lost * given.members)
    try:
        rounds = [
            run_round(given.members, given.shares, given.threshold, lost, given.elements, given.seed + repeat)
            for repeat in range(given.repeats)
        ]
    except RoundError as failure:
        sys.exit(f"flower_secagg: {failure}")
    setting = {
        "system": "flower",
        "version": flwr.__version__,
        "python": platform.python_version(),
        "graph": "sparse" if given.shares else "complete",
        "members": given.members,
        "shares": given.shares or given.members,
        "threshold": given.threshold,
        "lost": lost,
        "elements": given.elements,
        "repeats": given.repeats,
    }
    print(json.dumps(setting | median_of(rounds) | {"error_bound": ERROR_BOUND}))


if __name__ == "__main__":
    main()
