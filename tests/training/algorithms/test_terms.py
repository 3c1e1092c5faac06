from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from training.algorithms import Algorithm, Batch, ControlVariates, FedAvg, Proximal, Round, Site, State, Term
from training.data import Dataset
from training.heads import Classifier
from training.models import Extractor


def test_fedprox_has_its_half_and_its_square(quadratic: Callable[..., list[float]]) -> None:
    # μ = 1, η = ¼, target 4, from w = 0: the gradient is (w − 4) + μ(w − 0), so 0 → 1 → 1.5.
    algorithm = Algorithm(FedAvg(), (Proximal(1.0),))
    assert quadratic([4], [1], rounds=1, lr=0.25, local_epochs=2, algorithm=algorithm) == [1.5]


def test_scaffold_solved_by_hand(quadratic: Callable[..., list[float]]) -> None:
    # Targets 0 and 4, η = ½, K = 2, so Kη = 1. The mean weighs the members 1 : 3: weighed alike, corrections
    # that add up to zero would cancel, whatever their sign.
    # Round 1, nothing to correct: 0 and 3, so w = 2.25; c_k = 0 and −3, c = −1.5.
    # Round 2, gradients w − 0 − 0 − 1.5 and w − 4 + 3 − 1.5: 1.6875 and 2.4375, so w = 2.25; c_k = 2.0625 and
    # −1.6875, c = 0.1875.
    # Round 3, gradients w − 0 − 2.0625 + 0.1875 and w − 4 + 1.6875 + 0.1875: 1.96875 and 2.15625.
    algorithm = Algorithm(FedAvg(), (ControlVariates(),))
    run = quadratic([0, 4], [1, 3], rounds=3, lr=0.5, local_epochs=2, algorithm=algorithm)
    assert run == [2.25, 2.25, 2.109375]


def test_a_scaffold_members_control_variate_follows_option_two() -> None:
    # c_k − c + (θ^t − θ)/(Kη) = 0.5 − 2 + (3 − 1)/(4 · 0.1), and the message is what c_k changed by.
    head = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(head.weight)
    site = Site(
        model=Classifier(Extractor(torch.nn.Identity(), 1), head, normalise=False),
        records=Dataset(torch.ones(1, 1), torch.zeros(1, dtype=torch.int64), 1, "one"),
        received={"head.weight": torch.tensor([[5.0]])},
        origin={"head.weight": torch.tensor([[3.0]])},
        broadcast={"head.weight": torch.tensor([[2.0]])},
        memory={"head.weight": torch.tensor([[0.5]])},
        label_counts=torch.tensor([1]),
        round=Round(0, 0.1, members=12),
    )
    message, memory = ControlVariates().finish(site, steps=4)
    assert float(memory["head.weight"]) == pytest.approx(3.5)
    assert float(message["head.weight"]) == pytest.approx(3.0)


def test_scaffolds_server_divides_by_all_members() -> None:
    term = ControlVariates()
    messages = [{"w": torch.tensor(2.0)}, {"w": torch.tensor(4.0)}]
    reduced = term.reduce({"w": torch.tensor(1.0)}, messages, Round(0, 0.1, members=12))
    assert float(reduced["w"]) == 1.5


@dataclass(frozen=True)
class Recall(Term):
    """Uses every hook: moves the weight, shifts features, scales logits, counts at the member and at the server."""

    def start(self, model: Classifier) -> State:
        return {"seen": torch.zeros(()), "shift": torch.ones(())}

    def begin(self, site: Site) -> None:
        with torch.no_grad():
            site.model.head.weight += 1 / 16

    def features(self, z: Tensor, y: Tensor, site: Site) -> Tensor:
        return z + site.broadcast["shift"]

    def logits(self, logits: Tensor, y: Tensor, site: Site) -> Tensor:
        return logits * site.label_counts.sum()

    def penalty(self, batch: Batch, site: Site) -> Tensor:
        assert batch.z.eq(batch.x).all()  # the extractor's own
        assert batch.logits.shape == (len(batch.y), 1)
        return site.model.head.weight.sum() * site.memory.get("rounds", torch.zeros(()))

    def finish(self, site: Site, steps: int) -> tuple[State, State]:
        assert len(site.records) == site.label_counts.sum()
        rounds = site.memory.get("rounds", torch.zeros(())) + 1
        return {"rounds": rounds, "steps": torch.tensor(float(steps))}, {
            "rounds": rounds,
            "weight": site.model.head.weight.detach().clone(),
        }

    def reduce(self, broadcast: State, messages: Sequence[State], round_: Round) -> State:
        return {"seen": broadcast["seen"] + len(messages), "shift": torch.ones(()) * (2 + round_.index)}


def test_a_term_reaches_features_logits_loss_memory_and_the_server(
    quadratic: Callable[..., list[float]],
) -> None:
    # One member with two records, target 1, η = 1/64, one step a round, which begins 1/16 above what was
    # received. Round 1: z = 1 + 1 and the logit is 2·2·w, so from 4/64 the gradient is 4(1/4 − 1) = −3.
    # Round 2: the server sent shift 2 and the member remembers one round, so z = 3, the logit is 6w and from
    # 11/64 the gradient is 6(66/64 − 1) + 1 = 76/64.
    algorithm = Algorithm(FedAvg(), (Recall(),))
    run = quadratic([1], [2], rounds=2, lr=1 / 64, local_epochs=1, algorithm=algorithm)
    assert run == pytest.approx([7 / 64, 11 / 64 - 76 / 64**2])


def test_terms_add_up(quadratic: Callable[..., list[float]]) -> None:
    algorithm = Algorithm(FedAvg(), (Proximal(0.25), Proximal(0.75), Term()))
    assert quadratic([4], [1], rounds=1, lr=0.25, local_epochs=2, algorithm=algorithm) == [1.5]
