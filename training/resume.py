"""A run on disk between two rounds: all that the next round depends on, so that it goes on bit for bit.

Every random draw comes from a stream named by seed, round and member (`training.seeding`), so tensors and the number of the
round are the whole state. Nothing in the file is code.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

if TYPE_CHECKING:
    from pathlib import Path

    from training.algorithms import State

_KEY = "veilsum-run"


class ResumeError(ValueError):
    """A file that holds no run of ours, or another experiment's."""


@dataclass(frozen=True)
class RoundRecord:
    """One round's line in the history.

    Attributes:
        round: its number, from 1.
        rounds: how many there will be.
        lr: the learning rate it was trained with.
        local_loss: the participants' mean loss along their steps, weighted by records; no penalty is in it, such as SCAFFOLD's, which is
            linear in the weights and may have any sign.
        test_loss: the recipe's loss of the new global model on the test records.
        accuracy: that model's accuracy on the test records, in 0..1.
        seconds: wall-clock time.
        upload_bytes: what a participant sent, the most that one did.
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
    """What a run is between two rounds.

    Attributes:
        weights: the global ones, which members train.
        head: a fixed head that calibration has put in the place of the built one; empty before.
        server: the aggregation's state.
        broadcasts: per term, what its server half sends next.
        memory: per member and term, what the member keeps.
        history: of the rounds so far; its length is the next round's index.
    """

    weights: State
    server: State
    broadcasts: tuple[State, ...]
    memory: tuple[tuple[State, ...], ...]
    history: tuple[RoundRecord, ...]
    head: State = field(default_factory=dict)

    @property
    def model(self) -> State:
        """All that the global classifier has and the recipe alone does not say."""
        return self.weights | self.head

    def save(self, path: Path, experiment: dict[str, Any]) -> None:
        """Write it in one step: whoever reads finds the last snapshot or this one, whole, also after a power cut.

        Args:
            path: the file.
            experiment: whatever must be the same for a run that goes on from it, as JSON-ready data.
        """
        header = {
            "experiment": experiment,
            "history": [asdict(record) for record in self.history],
            "terms": len(self.broadcasts),
            "members": len(self.memory),
        }
        beside = path.with_name(path.name + ".part")
        # Not by save_file, whose own temporary file would stay behind where it is killed.
        with beside.open("wb") as file:
            file.write(save(_apart(self._named()), metadata={_KEY: json.dumps(header, sort_keys=True)}))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(cls, path: Path, experiment: dict[str, Any]) -> Snapshot:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ResumeError: it is none of ours, or another experiment's; says where they differ.
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
    """The tensors as they can be written, copied only where they share memory, which the format does not know, or have gaps."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in named.items():
        whole = tensor.detach().contiguous()
        place = whole.untyped_storage().data_ptr()
        apart[name] = whole.clone() if place in seen else whole
        seen.add(place)
    return apart
