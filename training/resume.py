"""Snapshots of a run between two rounds, from which it resumes bit for bit.

Every random draw comes from a stream named by seed, round and member (`training.seeding`), so tensors and the round
number are the whole state. Its files hold no code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from training.algorithms.base import State
from training.checkpoint import write_tensors

_SNAPSHOT_KEY = "veilsum-run"


class ResumeError(ValueError):
    """A file that holds no veilsum run, or another experiment's."""


@dataclass(frozen=True)
class RoundRecord:
    """One round of the history.

    Attributes:
        local_loss: the participants' mean loss over their steps, weighted by records, without penalties.
        test_loss: the new global model's loss on the test records; NaN if it was not evaluated in this round.
        accuracy: the new global model's accuracy on the test records, in 0..1, or NaN.
        upload_bytes: the most bytes that a participant sent.
    """

    round: int
    rounds: int
    lr: float
    local_loss: float
    test_loss: float
    accuracy: float
    seconds: float
    upload_bytes: int = 0


@dataclass(frozen=True)
class RunState:
    """The state of a run between two rounds.

    Attributes:
        broadcasts: per term, what its server half sends next.
        memory: per member and term, what the member keeps.
        history: of the rounds so far; its length is the next round's index.
        head: a calibrated head that replaced the fixed one; empty before.
    """

    weights: State
    server: State
    broadcasts: tuple[State, ...]
    memory: tuple[tuple[State, ...], ...]
    history: tuple[RoundRecord, ...]
    head: State = field(default_factory=dict)

    @property
    def model(self) -> State:
        """The global classifier's state, as far as the recipe does not determine it."""
        return self.weights | self.head


class Snapshots:
    """A folder that holds a run's last snapshot: the server's file, and one file for each member that keeps something.

    A snapshot writes only the members that took part since the last one, one member at a time. The server's file lists the
    members' files and gets its name last, so after a kill the folder holds the last snapshot or this one. Files that are not
    listed are removed afterwards.

    The folder is made when needed; nothing else may be kept there. `experiment` is what a run that resumes must share, as JSON-ready data.
    """

    def __init__(self, folder: Path, experiment: dict[str, Any]) -> None:
        self._folder = folder
        self._experiment = experiment
        self._members: dict[str, str] = {}

    def put_member(self, member: int, memory: Sequence[State], rounds: int) -> None:
        """Write what a member keeps after so many rounds; `commit` makes it part of the snapshot."""
        if not any(memory):
            self._members.pop(str(member), None)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"member-{member}-{rounds}.safetensors"
        write_tensors(self._folder / name, join_states({"memory": memory}))
        self._members[str(member)] = name

    def commit_run(self, run: RunState) -> None:
        """Write the server's state, and with it the snapshot of these rounds."""
        header = {
            "experiment": self._experiment,
            "history": [asdict(record) for record in run.history],
            "terms": len(run.broadcasts),
            "members": self._members,
        }
        tensors = join_states(
            {"weights": run.weights, "head": run.head, "server": run.server, "broadcast": run.broadcasts}
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        server = f"server-{len(run.history)}.safetensors"
        write_tensors(self._folder / server, tensors, {_SNAPSHOT_KEY: json.dumps(header, sort_keys=True)})
        for pattern in ("server-*", "member-*", ".tmp*"):  # the last are safetensors' own, after a kill
            for each in self._folder.glob(pattern):
                if each.name not in {server, *self._members.values()}:
                    each.unlink()

    def load_run(self, members: int) -> RunState | None:
        """Read the last snapshot, or None.

        Raises:
            ResumeError: it is damaged, or another experiment's.
        """
        found = sorted(
            self._folder.glob("server-*.safetensors"), key=lambda path: int(path.stem.split("-")[1])
        )
        if not found:
            return None
        try:
            with safe_open(found[-1], "pt") as file:
                header = json.loads(file.metadata()[_SNAPSHOT_KEY])
                stated, history, terms = header["experiment"], header["history"], header["terms"]
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it's no dict
                self._members = dict(header["members"])
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ResumeError(f"{found[-1]} holds no run to resume: {error}") from error
        differing = [
            f"{name} is {self._experiment.get(name)!r} here and {stated.get(name)!r} there"
            for name in sorted({*self._experiment, *stated})
            if self._experiment.get(name) != stated.get(name)
        ]
        if differing:
            raise ResumeError(
                f"{self._folder} is another experiment's: {differing[0]}; choose another folder, or remove it to start over"
            )
        return RunState(
            weights=pick_state(tensors, "weights"),
            head=pick_state(tensors, "head"),
            server=pick_state(tensors, "server"),
            broadcasts=pick_states(tensors, "broadcast", terms),
            memory=tuple(self._load_member(member, terms) for member in range(members)),
            history=tuple(RoundRecord(**record) for record in history),
        )

    def _load_member(self, member: int, terms: int) -> tuple[State, ...]:
        """Read what a member keeps in the loaded snapshot."""
        name = self._members.get(str(member))
        if name is None:
            return ({},) * terms
        try:
            return pick_states(load_file(self._folder / name), "memory", terms)
        except SafetensorError as error:
            raise ResumeError(f"{self._folder / name} holds no run to resume: {error}") from error


def join_states(parts: Mapping[str, State | Sequence[State]]) -> State:
    """Name each tensor by its part and, in a sequence of states, its place: ``part|name`` or ``part|0|name``.

    Tensors that share memory or have gaps are copied, because safetensors does not support them.
    """
    named: State = {}
    for part, states in parts.items():
        if isinstance(states, Mapping):
            named |= {f"{part}|{name}": tensor for name, tensor in states.items()}
        else:
            named |= join_states({f"{part}|{i}": state for i, state in enumerate(states)})
    seen: set[int] = set()
    for name, tensor in named.items():
        whole = tensor.detach().contiguous()
        place = whole.untyped_storage().data_ptr()
        named[name] = whole.clone() if place in seen else whole
        seen.add(place)
    return named


def pick_state(named: State, prefix: str) -> State:
    """Return one state of those that `join_states` named."""
    return {
        name.removeprefix(f"{prefix}|"): tensor
        for name, tensor in named.items()
        if name.startswith(f"{prefix}|")
    }


def pick_states(named: State, prefix: str, count: int) -> tuple[State, ...]:
    """Return a sequence of states of those that `join_states` named."""
    return tuple(pick_state(named, f"{prefix}|{i}") for i in range(count))
