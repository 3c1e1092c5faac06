"""Repeat CCVR's table 2 on one GPU, a heterogeneity at a time; then calibrate and write results, which needs none.

.venv/bin/python -m research.stacked train --alpha 0.1 --output runs/stacked        # needs CUDA and cupy
.venv/bin/python -m research.stacked finish --output runs/stacked                   # runs/stacked/EXPERIMENT/seed-N.json
"""

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

from research.papers import paper_experiment
from research.stacked.runs import Stack
from training.experiments.config import Experiment
from training.experiments.running import finish_run, prepare_data
from training.federated import Trained
from training.results import write_result
from training.resume import RoundRecord

METHODS = ("fedavg", "fedprox", "fedavgm", "moon")
ALPHAS: dict[str, tuple[str, ...]] = {
    "0.5": ("alpha-05", "jpeg"),
    "0.1": ("jpeg",),
    "0.05": ("alpha-005", "jpeg"),
}


def experiments(alpha: str) -> list[Experiment]:
    return [paper_experiment(f"ccvr-{method}", ALPHAS[alpha]) for method in METHODS]


def train(
    alphas: list[str], seeds: int, rounds: int | None, output: Path, data: Path | None, device: str
) -> None:
    """Train each method under each seed and heterogeneity, and write the models to `trained-ALPHA.pt`."""
    torch.backends.cuda.matmul.allow_tf32 = False
    began = time.perf_counter()
    chosen = [(alpha, seed) for alpha in alphas for seed in range(seeds)]
    scenes = [prepare_data(experiments(alpha)[0], seed, data) for alpha, seed in chosen]
    recipes = [
        [each.make_recipe(scene.data.train, seed) for each in experiments(alpha)]
        for (alpha, seed), scene in zip(chosen, scenes, strict=True)
    ]
    stack = Stack(scenes, recipes, torch.device(device))

    def tell(done: int) -> None:
        last = [own[-1].accuracy for scene in stack.history for own in scene]
        means = ", ".join(f"{sum(last[q :: len(METHODS)]) / len(scenes):.1%}" for q in range(len(METHODS)))
        print(f"{alphas}: round {done} after {time.perf_counter() - began:.0f} s: {means}", flush=True)

    stack.train(rounds or recipes[0][0].rounds, tell)
    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    place = f"{name}, float32, torch {torch.__version__}"
    for alpha in alphas:
        runs = [
            {
                "alpha": alpha,
                "seed": chosen[s][1],
                "method": q,
                "place": place,
                "weights": dict(found.classifier.shared_weights()),
                "history": [asdict(record) for record in found.history],
            }
            for s, q, found in stack.trained()
            if chosen[s][0] == alpha
        ]
        torch.save(runs, output / f"trained-{alpha}.pt")


def finish(output: Path, data: Path | None) -> None:
    """Calibrate and evaluate what `train` wrote, on the CPU."""
    for file in sorted(output.glob("trained-*.pt")):
        for run in torch.load(file, weights_only=True):
            experiment, seed = experiments(run["alpha"])[run["method"]], run["seed"]
            prepared = prepare_data(experiment, seed, data)
            recipe = experiment.make_recipe(prepared.data.train, seed)
            classifier = recipe.build(prepared.data.train.classes)
            classifier.load_state_dict(run["weights"], strict=False)
            history = tuple(RoundRecord(**record) for record in run["history"])
            trained = Trained(classifier.eval(), history, recipe)
            result = finish_run(experiment, seed, prepared, trained, place=run["place"]).result
            path = output / experiment.name.replace("/", "-") / f"seed-{seed}.json"
            path.parent.mkdir(exist_ok=True)
            write_result(result, path)
            heads = ", ".join(f"{each.kind} {each.accuracy:.1%}" for each in result.calibrations)
            print(f"{experiment.name} seed {seed}: {result.accuracy:.1%}, then {heads}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("train", "finish"))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's where not given")
    parser.add_argument("--alpha", choices=ALPHAS, nargs="+", default=["0.1"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="fewer than the paper's 100, for a trial")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    if args.step == "train":
        train(args.alpha, args.seeds, args.rounds, args.output, args.data, args.device)
    else:
        finish(args.output, args.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
