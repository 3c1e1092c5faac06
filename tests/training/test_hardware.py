from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.calls import record_calls
from tests.support.digits import DIGITS, MLP, KilledError, kill_after
from training.algorithms.named import ALGORITHMS, fedrep
from training.federated import train
from training.hardware import Hardware
from training.local import LocalTrainer
from training.models.config import ExtractorConfig
from training.partition import dirichlet_partition, iid_partition
from training.recipe import fedavg_recipe

PARTITION = iid_partition(DIGITS.train.y.numpy(), 2, np.random.default_rng(0))
UNEVEN = dirichlet_partition(DIGITS.train.y.numpy(), 3, 0.5, np.random.default_rng(0), min_size=150)


def test_a_device_that_is_not_there_is_refused_and_others_named() -> None:
    for name in ("nothing", "cuda:63"):
        with pytest.raises(ValueError, match=f"device {name!r} .*cpu"):
            Hardware.choose_device(name)
    with pytest.raises(ValueError, match="device 'meta'"):
        Hardware.choose_device("meta")
    assert Hardware.choose_device("cpu") == Hardware()


def test_records_that_are_not_on_the_processor_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = record_calls(monkeypatch, Hardware, "move_images", lambda _, x: x)
    recipe = fedavg_recipe(MLP, rounds=2, local_epochs=1)
    runs = [train(recipe, DIGITS, PARTITION, hardware=Hardware(device)) for device in ("cpu", "cpu:0")]
    torch.testing.assert_close(*(run.classifier.state_dict() for run in runs), rtol=0, atol=0)
    # As on a GPU, the second: nothing but what was drawn from the records that lie there.
    assert [x is DIGITS.train.x for x in sent].count(True) == 1


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CNN = ExtractorConfig("cnn", (1, 8, 8))


@gpu
@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "fedrep", "feduv", "moon", "scaffold"])
def test_a_gpu_trains_as_the_processor_does_but_for_rounding(
    name: str,
    augment: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Members of several lengths, rounds and epochs: captured steps are replayed for other members' records and states.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    recipe = fedavg_recipe(
        CNN,
        algorithm=fedrep(head_epochs=1) if name == "fedrep" else ALGORITHMS[name](),
        rounds=3,
        local_epochs=4,
        lr=0.01,
        batch_size=128,
        augment=augment,
    )
    there = train(recipe, DIGITS, UNEVEN, hardware=Hardware.choose_device("cuda"))
    here = train(recipe, DIGITS, UNEVEN)
    torch.testing.assert_close(
        there.classifier.state_dict(), here.classifier.state_dict(), atol=1e-3, rtol=1e-2
    )
    for one, other in zip(there.history, here.history, strict=True):
        assert one.local_loss == pytest.approx(other.local_loss, rel=1e-3)


@gpu
def test_on_a_gpu_code_of_ones_own_runs_at_every_step() -> None:
    calls = list[int]()

    def counted(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        calls.append(len(labels))
        return torch.nn.functional.cross_entropy(logits, labels)

    recipe = fedavg_recipe(CNN, rounds=1, local_epochs=4, loss=counted)
    train(recipe, DIGITS, PARTITION, hardware=Hardware("cuda"))
    steps = sum(-(-len(rows) // recipe.batch_size) for rows in PARTITION.members) * 4
    assert len(calls) == steps + 1  # and the evaluation


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "fedrep"])
def test_the_server_stays_on_the_cpu_where_updates_come_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The meta device replaces a GPU: computing on it with tensors from elsewhere fails.
    def trained_elsewhere(recipe: Any, data: Any, partition: Any, *_: Any) -> Any:
        return nullcontext(partial(map, LocalTrainer(recipe, data, partition)))

    monkeypatch.setattr("training.federated.local_training", trained_elsewhere)
    monkeypatch.setattr("training.federated.evaluate_classifier", lambda *_: (0.5, 0.5))
    monkeypatch.setattr(Hardware, "move_records", lambda _, data: data)
    recipe = fedavg_recipe(MLP, algorithm=ALGORITHMS[name](), rounds=3, local_epochs=1, batch_size=512)
    with pytest.raises(KilledError):  # before the model, which has no data, is copied back
        train(recipe, DIGITS, PARTITION, hardware=Hardware("meta"), progress=kill_after(3))
