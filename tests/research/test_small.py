"""The result files in the repository belong to the grid's cells, with their current settings."""

from pathlib import Path

import torch

from research.reproduce_small import Cell, cells
from research.results import read_run, task
from training.data.dataset import Dataset
from training.results import Diverged

KEPT = Path(__file__).parents[2] / "research" / "results" / "reproduce-small"


def test_each_cell_is_kept_at_its_settings() -> None:
    for cell in cells():
        check_kept(cell)


def check_kept(cell: Cell) -> None:
    kept = read_run(cell.file(KEPT))
    experiment, facts = cell.experiment, kept.data
    like_it = Dataset(
        x=torch.zeros((1, *facts.shape), dtype=torch.uint8),
        y=torch.zeros(1, dtype=torch.long),
        classes=facts.classes,
        name=facts.name,
        mean=tuple(kept.recipe["model"]["mean"]),
        std=tuple(kept.recipe["model"]["std"]),
    )
    recipe = experiment.make_recipe(like_it, cell.seed).describe()
    choice, deal = experiment.data, experiment.deal
    assert isinstance(deal, dict)
    asked = kept.model_copy(
        update={
            "experiment": experiment.name,
            "scale": experiment.scale,
            "seed": cell.seed,
            "recipe": recipe,
            "data": facts.model_copy(
                update={
                    "available": choice.train_records,
                    "stands_in_for": choice.stands_in_for,
                    "note": choice.note,
                }
            ),
            "deal": kept.deal.model_copy(
                update={
                    "kind": deal["name"],
                    "options": {name: value for name, value in deal.items() if name != "name"},
                }
            ),
        }
    )
    assert task(kept) == task(asked)
    assert kept.seed == cell.seed
    if not isinstance(kept, Diverged):
        assert {each.kind for each in kept.calibrations} == set(experiment.calibrate)
        assert set(kept.personal) == set(experiment.personal.methods if experiment.personal else ())


def test_no_other_file_is_kept() -> None:
    assert {cell.file(KEPT) for cell in cells()} == set(KEPT.rglob("*.json"))
