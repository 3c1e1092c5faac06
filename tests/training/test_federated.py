from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isnan
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.support.digits import DIGITS, SIX
from tests.support.digits import LARGER as MLP
from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm, Batch, Site, State, Term, TrainingRound, Update
from training.algorithms.weights import ControlVariates, Proximal
from training.calibrating import MemberFeatures
from training.data.dataset import Dataset, Split
from training.evaluate import accuracy, with_head
from training.federated import DivergedError, Trained, train
from training.heads import LearnedHead, orthonormal_head
from training.partition import Partition
from training.recipe import Constant, Cosine, Recipe, fedavg_recipe, spherefed_recipe
from training.results import history_lines
from training.resume import RoundRecord
from veilsum.calibration import solve_ffc


def same_bits(one: Trained, other: Trained) -> bool:
    a, b = one.classifier.state_dict(), other.classifier.state_dict()
    outcome = [[(r.local_loss, r.test_loss, r.accuracy) for r in trained.history] for trained in (one, other)]
    return all(torch.equal(a[name], b[name]) for name in a) and outcome[0] == outcome[1]


def test_fedavg_on_quadratics_solved_by_hand(quadratic: Callable[..., list[float]]) -> None:
    # Two steps of η = ½ quarter the distance to the target: from 0, members reach 0 and 3, then, from
    # (1·0 + 3·3)/4 = 2.25, they reach 0.5625 and 3.5625, of mean 2.8125.
    assert quadratic([0, 4], [1, 3], rounds=2, lr=0.5, local_epochs=2) == [2.25, 2.8125]


def test_the_rate_falls_by_the_round(quadratic: Callable[..., list[float]]) -> None:
    # One member at target 4: η = ½ from 0 gives 2, then, in round 1 of 2, η = ¼ gives 2.5.
    assert quadratic([4], [2], rounds=2, lr=0.5, local_epochs=1, schedule=Cosine())[1] == pytest.approx(2.5)


def test_momentum_starts_each_round_at_rest(quadratic: Callable[..., list[float]]) -> None:
    # η = ¼, momentum ½: the velocity is −4, then −3 − 2, so 0 → 1 → 2.25; at rest again, −1.75 and
    # −1.3125 − 0.875, so 2.25 → 2.6875 → 3.234375.
    run = quadratic([4], [2], rounds=2, lr=0.25, momentum=0.5, local_epochs=2)
    assert run == [2.25, 3.234375]


def test_one_full_step_of_equal_members_is_the_central_step() -> None:
    x, y = DIGITS.train.x[:64], DIGITS.train.y[:64]
    doubled = Dataset(torch.cat([x, x]), torch.cat([y, y]), 10, "twice")
    partition = Partition.of([np.arange(64), np.arange(64, 128)], doubled.y.numpy())
    recipe = fedavg_recipe(MLP, rounds=1, local_epochs=1, batch_size=64, lr=0.3, weight_decay=0.01)
    central = recipe.build(10)
    functional.cross_entropy(central(x), y).backward()  # type: ignore[no-untyped-call]  # torch's omission
    for weight in central.parameters():
        assert weight.grad is not None
        weight.data.sub_(weight.grad + 0.01 * weight.data, alpha=0.3)
    federated = train(recipe, Split(doubled, DIGITS.test), partition).classifier
    torch.testing.assert_close(federated.state_dict(), central.state_dict())


def test_rounds_between_evaluations_have_no_accuracy_and_members_are_counted_within_each() -> None:
    members: list[tuple[int, int, int]] = []
    recipe = fedavg_recipe(MLP, rounds=5, local_epochs=1, participation=0.5)
    every, second = (
        train(recipe, DIGITS, SIX, evaluate_every=n, within=lambda *count: members.append(count))
        for n in (1, 2)
    )
    assert [record.accuracy for record in second.history[1::2]] == [r.accuracy for r in every.history[1::2]]
    assert [isnan(record.accuracy) for record in second.history] == [True, False, True, False, False]
    assert second.history[-1].test_loss == every.history[-1].test_loss
    assert members == [(round_, done, 3) for round_ in range(1, 6) for done in (1, 2, 3)] * 2
    assert [line.accuracy is None for line in history_lines(second.history)] == [
        True,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("preset", [fedavg_recipe, spherefed_recipe])
def test_digits_are_learned(preset: Callable[..., Recipe]) -> None:
    seen: list[RoundRecord] = []
    recipe = preset(MLP, rounds=8, local_epochs=2, batch_size=32)
    trained = train(recipe, DIGITS, SIX, progress=seen.append)
    assert trained.history == tuple(seen)
    assert [record.round for record in seen] == list(range(1, 9))
    assert trained.history[0].accuracy < 0.85 < trained.history[-1].accuracy
    assert trained.history[0].test_loss > trained.history[-1].test_loss
    assert trained.history[0].local_loss > trained.history[-1].local_loss
    assert not trained.classifier.training


def test_a_head_calibrated_between_rounds_is_ffcs_and_the_next_rounds_train_under_it() -> None:
    recipe = spherefed_recipe(MLP, rounds=4, local_epochs=5, lr=0.1)
    once = train(replace(recipe, rounds=2, schedule=Constant()), DIGITS, SIX)
    held = MemberFeatures.compute_features(once.classifier, DIGITS.train, SIX)
    solution = solve_ffc(held.sum_ffc())
    trained = train(replace(recipe, rounds=3, schedule=Constant(), calibrate_every=2), DIGITS, SIX)
    torch.testing.assert_close(trained.classifier.head.weight, torch.from_numpy(solution.weights.T).float())
    calibrated = accuracy(with_head(once.classifier, solution.weights), DIGITS.test)
    assert [r.accuracy for r in trained.history[:2]] == [once.history[0].accuracy, calibrated]
    plain, with_sums, after = (record.upload_bytes for record in trained.history)
    assert plain == after == with_sums - held.sum_ffc().layout.elements * 48 // 8
    plainly = train(replace(recipe, rounds=3, schedule=Constant()), DIGITS, SIX)
    assert trained.history[2].accuracy > plainly.history[2].accuracy  # members started from the better head
    assert trained.history[2].local_loss < plainly.history[2].local_loss


@pytest.mark.parametrize(
    "choices", [{"head": LearnedHead, "normalise": True}, {"head": orthonormal_head, "normalise": False}]
)
def test_what_ffc_cannot_take_the_place_of_between_rounds_is_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="head"):
        Recipe(model=MLP, calibrate_every=2, **choices).build(10)


def test_the_same_seed_gives_the_same_bits_whatever_torchs_generator_says() -> None:
    recipe = spherefed_recipe(MLP, rounds=2, local_epochs=1, participation=0.5)
    torch.manual_seed(1)
    one = train(recipe, DIGITS, SIX)
    torch.manual_seed(2)
    assert same_bits(one, train(recipe, DIGITS, SIX))
    assert not same_bits(one, train(replace(recipe, seed=1), DIGITS, SIX))


@pytest.mark.slow
def test_worker_processes_give_the_same_bits() -> None:
    # With terms whose states and memories cross to the workers and back, over rounds that not all take part in.
    algorithm = Algorithm(FedAvg(uniform=True), (ControlVariates(), Proximal(0.01)))
    recipe = fedavg_recipe(
        MLP, algorithm=algorithm, rounds=3, local_epochs=1, momentum=0.0, participation=0.7
    )
    assert same_bits(train(recipe, DIGITS, SIX), train(recipe, DIGITS, SIX, workers=2))


def test_training_runs_on_one_thread_and_gives_the_callers_threads_back() -> None:
    threads = torch.get_num_threads()
    seen = []
    torch.set_num_threads(2)
    try:
        train(
            fedavg_recipe(MLP, rounds=1), DIGITS, SIX, progress=lambda _: seen.append(torch.get_num_threads())
        )
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("participation", "count"), [(0.01, 1), (0.5, 2), (0.8, 3), (1.0, 4)])
def test_a_fraction_of_the_members_takes_part_but_never_nobody(
    quadratic: Callable[..., list[float]], participation: float, count: int
) -> None:
    # One step of ½ takes a member from 0 half the way to its target; no two sets of members have the same mean.
    targets = [2, 6, 18, 54]
    (result,) = quadratic(
        targets, [1, 1, 1, 1], rounds=1, lr=0.5, local_epochs=1, participation=participation
    )
    means = [sum(chosen) / count / 2 for chosen in combinations(targets, count)]
    assert result == pytest.approx(min(means, key=lambda mean: abs(mean - result)))


@dataclass(frozen=True)
class Toll(Term):
    """Add a constant that is in no gradient."""

    height: float

    def penalty(self, batch: Batch, site: Site) -> float:
        return self.height


@pytest.mark.parametrize("height", [-1000.0, float("inf")])
def test_the_losses_told_and_judged_are_those_of_records_without_penalties(height: float) -> None:
    plain, tolled = (
        train(fedavg_recipe(MLP, rounds=2, local_epochs=1, algorithm=Algorithm(FedAvg(), terms)), DIGITS, SIX)
        for terms in ((), (Toll(height),))
    )
    assert same_bits(plain, tolled)


def first_logit(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return logits[:, 0].square().mean()


@dataclass(frozen=True)
class Overflowing(FedAvg):
    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        mean, state = super().combine(weights, updates, state, round_)
        mean["head.bias"][1] = torch.inf
        return mean, state


def test_a_weight_that_is_no_number_ends_a_run_whose_losses_are() -> None:
    recipe = fedavg_recipe(MLP, rounds=2, local_epochs=1, lr=0.01, loss=first_logit)
    train(recipe, DIGITS, SIX)
    with pytest.raises(DivergedError, match="round 1"):
        train(replace(recipe, algorithm=Algorithm(Overflowing())), DIGITS, SIX)


class Collapsing(FedAvg):
    """Makes all features zero."""

    def combine(
        self, weights: State, updates: Sequence[Update], state: State, round_: TrainingRound
    ) -> tuple[State, State]:
        mean, state = super().combine(weights, updates, state, round_)
        return {name: torch.zeros_like(tensor) for name, tensor in mean.items()}, state


def test_features_that_no_head_can_be_calibrated_to_end_a_run() -> None:
    recipe = spherefed_recipe(MLP, algorithm=Algorithm(Collapsing()), rounds=2, local_epochs=1)
    train(replace(recipe, rounds=1), DIGITS, SIX)
    with pytest.raises(DivergedError, match="round 1"):
        train(replace(recipe, calibrate_every=1), DIGITS, SIX)
