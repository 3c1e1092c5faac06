"""The extractor: trained by the members together, then each member's features from it."""

import time
from dataclasses import dataclass, replace

import torch

from training.checkpoint import save_checkpoint
from training.data.catalogue import load_digits_dataset
from training.data.dataset import Dataset, Split
from training.federated import train
from training.heads import Classifier
from training.partition import Partition
from training.recipe import Recipe
from training.resume import RoundRecord
from veilsum.cli.demo.canaries import choose_canaries, make_pack, write_member_file
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.plan import DemoPlan, demo_fedavg_recipe, demo_partition, rare_partition
from veilsum.cli.demo.screen import Screen
from veilsum.cli.training_run import DIGITS_PREPROCESSING
from veilsum.study.canaries import CanaryPack

EVEN_ROUNDS = 5


@dataclass(frozen=True)
class Learned:
    """A trained federation.

    Attributes:
        classifier: SphereFed's, under the fixed head that it was trained with.
        recipe: of that training.
        members: in the partition's order.
        canaries: test records, which each member's file holds too.
        pack: of the canaries.
        accuracies: SphereFed's on the test records after each round.
        seconds: of SphereFed's training.
    """

    classifier: Classifier
    recipe: Recipe
    data: Split
    partition: Partition
    members: tuple[str, ...]
    canaries: Dataset
    pack: CanaryPack
    digest: bytes
    accuracies: tuple[float, ...]
    seconds: float

    def train_fedavg(self) -> Classifier:
        """Train the same model by FedAvg, on the same members and in as many rounds."""
        return train(demo_fedavg_recipe(self.recipe), self.data, self.partition).classifier


def train_federation(plan: DemoPlan, folder: Folder, screen: Screen) -> Learned:
    """Train SphereFed, and write its checkpoint and each member's features."""
    data = load_digits_dataset(plan.seed)
    deal = rare_partition if plan.withhold else demo_partition
    partition = deal(data.train, plan.seed)
    began = time.perf_counter()
    with screen.show_stage("Training") as stage:

        def progress(record: RoundRecord) -> None:
            stage.update_bar(record.round, record.rounds, f"accuracy {record.accuracy:.1%}")

        recipe = plan.recipe(plan.seed)
        if plan.withhold:
            # Digits dealt evenly are soon learnt, and little would be left to calibrate.
            recipe = replace(recipe, rounds=min(recipe.rounds, EVEN_ROUNDS))
        trained = train(recipe, data, partition, progress=progress)
        last = trained.history[-1]
        stage.outcome = f"{last.rounds} rounds on {len(partition)} members' digits: {last.accuracy:.1%}"
    seconds = time.perf_counter() - began
    digest = save_checkpoint(trained.classifier, folder.extractor, preprocessing=DIGITS_PREPROCESSING)
    members = tuple(f"member-{k + 1:02}" for k in range(len(partition)))
    canaries = choose_canaries(data.test)
    for member, rows in zip(members, partition.members, strict=True):
        folder.member_folder(member).mkdir(mode=0o700, parents=True)
        own = data.train.subset(torch.from_numpy(rows))
        write_member_file(folder.features_file(member), trained.classifier, own, canaries)
    return Learned(
        trained.classifier,
        recipe,
        data,
        partition,
        members,
        canaries,
        make_pack(trained.classifier, canaries),
        digest,
        tuple(record.accuracy for record in trained.history),
        seconds,
    )
