"""Snapshots of a run between two rounds, from which it resumes bit for bit.

Every random draw comes from a stream named by seed, round and member (`training.seeding`), so tensors and the round
number are the whole state. The file holds no code.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from training.algorithms import State

_KEY = "veilsum-run"


class ResumeError(ValueError):
    """A file that holds no veilsum run, or another experiment's."""


@dataclass(frozen=True)
class RoundRecord:
    """One round of the history.

    Attributes:
        round: its number, from 1.
        rounds: rounds of the whole run.
        lr: its learning rate.
        local_loss: the participants' mean loss over their steps, weighted by records, without penalties.
        test_loss: the new global model's loss on the test records.
        accuracy: the new global model's accuracy on the test records, in 0..1.
        seconds: wall-clock time.
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
class Snapshot:
    """The state of a run between two rounds.

    Attributes:
        weights: the global weights that members train.
        server: the aggregation's state.
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

    def save(self, path: Path, experiment: dict[str, Any]) -> None:
        """Write atomically: after a power cut the file is the last snapshot or this one.

        Args:
            path: the file.
            experiment: what a run that resumes from it must share, as JSON-ready data.
        """
        header = {
            "experiment": experiment,
            "history": [asdict(record) for record in self.history],
            "terms": len(self.broadcasts),
            "members": len(self.memory),
        }
        beside = path.with_name(path.name + ".part")
        # Not by save_file, which leaves its temporary file behind if it is killed.
        with beside.open("wb") as file:
            file.write(save(_apart(self._named()), metadata={_KEY: json.dumps(header, sort_keys=True)}))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(cls, path: Path, experiment: dict[str, Any]) -> Self:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ResumeError: it is no snapshot, or another experiment's.
        """
        try:
            with safe_open(path, "pt") as file:
                header = json.loads(file.metadata()[_KEY])
                stated, history = header["experiment"], header["history"]
                terms, members = range(header["terms"]), range(header["members"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it's no dict
        except FileNotFoundError:
            raise
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ResumeError(f"{path} holds no run to go on from: {error}") from error
        differing = [
            f"{name} is {experiment.get(name)!r} here and {stated.get(name)!r} there"
            for name in sorted({*experiment, *stated})
            if experiment.get(name) != stated.get(name)
        ]
        if differing:
            raise ResumeError(
                f"{path} is another experiment's: {differing[0]}; choose another folder, or remove it to start anew"
            )

        def part(prefix: str) -> State:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        return cls(
            weights=part("weights|"),
            head=part("head|"),
            server=part("server|"),
            broadcasts=tuple(part(f"broadcast|{i}|") for i in terms),
            memory=tuple(tuple(part(f"memory|{k}|{i}|") for i in terms) for k in members),
            history=tuple(RoundRecord(**record) for record in history),
        )

    def _named(self) -> State:
        named = {f"weights|{n}": t for n, t in self.weights.items()}
        named |= {f"head|{n}": t for n, t in self.head.items()}
        named |= {f"server|{n}": t for n, t in self.server.items()}
        for i, broadcast in enumerate(self.broadcasts):
            named |= {f"broadcast|{i}|{n}": t for n, t in broadcast.items()}
        for k, states in enumerate(self.memory):
            for i, state in enumerate(states):
                named |= {f"memory|{k}|{i}|{n}": t for n, t in state.items()}
        return named


def _apart(named: State) -> State:
    """Copy tensors that share memory or have gaps, which the file format does not support."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in named.items():
        whole = tensor.detach().contiguous()
        place = whole.untyped_storage().data_ptr()
        apart[name] = whole.clone() if place in seen else whole
        seen.add(place)
    return apart
