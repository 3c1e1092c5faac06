from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.digits import DIGITS
from training.algorithms.aggregations import FedAvg, FedNova, ServerOptimiser, Spreading
from training.algorithms.base import (
    Aggregation,
    Algorithm,
    Batch,
    Site,
    State,
    Term,
    TrainingRound,
    trained_parameters,
    zero_state,
)
from training.algorithms.named import scaffold
from training.algorithms.weights import (
    ControlVariates,
    DynamicCorrection,
    DynamicPenalty,
    HeadFirst,
    Proximal,
)
from training.data.dataset import Dataset, Split
from training.federated import train
from training.heads import Classifier
from training.models.config import ExtractorConfig
from training.models.layers import Extractor
from training.partition import dirichlet_partition
from training.recipe import fedavg_recipe


def test_scaffold_solved_by_hand(quadratic: Callable[..., list[float]]) -> None:
    # Targets 0 and 4, η = ½, K = 2, so Kη = 1, and the members count 1 : 3, so p_k = ¼ and ¾: the optimum is 3.
    # TrainingRound 1, nothing to correct: 0 and 3, so w = 2.25; c_k = 0 and −3, c = −2.25.
    # TrainingRound 2, gradients w − 0 − 0 − 2.25 and w − 4 + 3 − 2.25: 2.25 stays, and 2.25 → 2.75 → 3, so w = 2.8125;
    # c_1 = 0 + 2.25 + 0, c_2 = −3 + 2.25 − 0.75 = −1.5, c = −2.25 + ¼·2.25 + ¾·1.5 = −0.5625.
    # TrainingRound 3, gradients w − 2.25 − 0.5625 and w − 4 + 1.5 − 0.5625: 2.8125 stays, and 2.8125 → 2.9375 → 3.
    run = quadratic([0, 4], [1, 3], rounds=3, lr=0.5, local_epochs=2, algorithm=scaffold(uniform=False))
    assert run == [2.25, 2.8125, 2.953125]


def test_scaffold_refuses_to_count_members_otherwise_than_the_aggregation() -> None:
    for aggregation in (FedAvg(), FedNova(), ServerOptimiser(), Spreading()):
        assert Algorithm(aggregation, (ControlVariates(uniform=False),)).terms
        with pytest.raises(ValueError, match="aggregation"):
            Algorithm(aggregation).plus(ControlVariates())
    for alike in (FedAvg(uniform=True), DynamicCorrection(0.1), Spreading(inner=FedAvg(uniform=True))):
        assert Algorithm(alike, (ControlVariates(),)).terms
        with pytest.raises(ValueError, match="uniform = true"):
            Algorithm(alike, (ControlVariates(uniform=False),))


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
        round=TrainingRound(0, 0.1, members=12),
    )
    message, memory = ControlVariates().finish(site, steps=4)
    assert float(memory["head.weight"]) == pytest.approx(3.5)
    assert float(message["head.weight"]) == pytest.approx(3.0)
    # By records it counts 12 · 1/48, as one of twelve members that hold 48.
    by_records = replace(site, round=TrainingRound(0, 0.1, members=12, records=48))
    message, memory = ControlVariates(uniform=False).finish(by_records, steps=4)
    assert float(memory["head.weight"]) == pytest.approx(3.5)
    assert float(message["head.weight"]) == pytest.approx(0.75)


def test_scaffolds_server_divides_by_all_members() -> None:
    term = ControlVariates()
    messages = [{"w": torch.tensor(2.0)}, {"w": torch.tensor(4.0)}]
    reduced = term.reduce({"w": torch.tensor(1.0)}, messages, TrainingRound(0, 0.1, members=12))
    assert float(reduced["w"]) == 1.5


class ByAutograd(Term):
    """The papers' penalties as scalars, in place of their gradients."""

    def quadratic(self, name: str, site: Site) -> tuple[float, Tensor | float]:
        return 0.0, 0.0


class ProximalByAutograd(ByAutograd, Proximal):
    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        held = [
            (n, p)
            for n, p in trained_parameters(site.model).items()
            if self.over == "all" or n.startswith("head.")
        ]
        return 0.5 * self.mu * sum((p - site.origin[name]).square().sum() for name, p in held)


class ControlVariatesByAutograd(ByAutograd, ControlVariates):
    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        own = site.memory or zero_state(site.model)
        return sum(
            ((site.broadcast[n] - own[n]) * p).sum() for n, p in trained_parameters(site.model).items()
        )


class DynamicPenaltyByAutograd(ByAutograd, DynamicPenalty):
    def penalty(self, batch: Batch, site: Site) -> Tensor | float:
        own = site.memory or zero_state(site.model)
        return sum(
            0.5 * self.alpha * (p - site.origin[name]).square().sum() - (own[name] * p).sum()
            for name, p in trained_parameters(site.model).items()
        )


@pytest.mark.parametrize(
    ("aggregation", "terms", "by_autograd"),
    [
        (FedAvg(), (Proximal(1.0),), (ProximalByAutograd(1.0),)),
        (FedAvg(), (Proximal(1.0, "head"),), (ProximalByAutograd(1.0, "head"),)),
        (FedAvg(uniform=True), (ControlVariates(),), (ControlVariatesByAutograd(),)),
        (DynamicCorrection(0.5), (DynamicPenalty(0.5),), (DynamicPenaltyByAutograd(0.5),)),
        (
            FedAvg(uniform=True),
            (Proximal(0.5), HeadFirst(1), ControlVariates()),
            (ProximalByAutograd(0.5), HeadFirst(1), ControlVariatesByAutograd()),
        ),
    ],
    ids=["FedProx", "clsprox", "SCAFFOLD", "FedDyn", "together"],
)
def test_penalties_change_steps_as_autograd_would(
    aggregation: Aggregation, terms: tuple[Term, ...], by_autograd: tuple[Term, ...]
) -> None:
    digits = Split(DIGITS.train.subset(torch.arange(450)), DIGITS.test)
    partition = dirichlet_partition(digits.train.y.numpy(), 3, 0.1, np.random.default_rng(0))
    model = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 16, "dim": 8})
    plain, given, reference = (
        train(
            fedavg_recipe(
                model, algorithm=Algorithm(aggregation, own), rounds=2, local_epochs=2, lr=0.02, momentum=0.5
            ),
            digits,
            partition,
        ).classifier.state_dict()
        for own in ((), terms, by_autograd)
    )
    for name, weight in reference.items():
        torch.testing.assert_close(given[name], weight, rtol=1e-4, atol=1e-5)
    assert any((given[name] - plain[name]).abs().max() > 1e-3 for name in plain)


@dataclass(frozen=True)
class Recall(Term):
    """Use every hook: move the weight, shift features, scale logits, count at the member and at the server."""

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

    def reduce(self, broadcast: State, messages: Sequence[State], round_: TrainingRound) -> State:
        return {"seen": broadcast["seen"] + len(messages), "shift": torch.ones(()) * (2 + round_.index)}


def test_a_term_reaches_features_logits_loss_memory_and_the_server(
    quadratic: Callable[..., list[float]],
) -> None:
    # One member with two records, target 1, η = 1/64, one step a round, which begins 1/16 above what was
    # received. TrainingRound 1: z = 1 + 1 and the logit is 2·2·w, so from 4/64 the gradient is 4(1/4 − 1) = −3.
    # TrainingRound 2: the server sent shift 2 and the member remembers one round, so z = 3, the logit is 6w and from
    # 11/64 the gradient is 6(66/64 − 1) + 1 = 76/64.
    algorithm = Algorithm(FedAvg(), (Recall(),))
    run = quadratic([1], [2], rounds=2, lr=1 / 64, local_epochs=1, algorithm=algorithm)
    assert run == pytest.approx([7 / 64, 11 / 64 - 76 / 64**2])


def test_terms_add_up(quadratic: Callable[..., list[float]]) -> None:
    # μ = 1, η = ¼, target 4, from w = 0: the gradient is (w − 4) + μ(w − 0), so 0 → 1 → 1.5.
    algorithm = Algorithm(FedAvg(), (Proximal(0.25), Proximal(0.75), Term()))
    assert quadratic([4], [1], rounds=1, lr=0.25, local_epochs=2, algorithm=algorithm) == [1.5]
