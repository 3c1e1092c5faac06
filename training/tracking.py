"""Charts of a run in TensorBoard or MLflow, each an extra."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any

from training.results import RunResult
from training.resume import RoundRecord


class TrackingError(ValueError):
    """A tracker that is unknown, not installed, or cannot be set up."""


def round_measures(record: RoundRecord) -> dict[str, float]:
    """Return a round's numbers by their names in charts; those of the test records only if they were evaluated."""
    found = {
        "accuracy": record.accuracy,
        "loss/local": record.local_loss,
        "loss/test": record.test_loss,
        "learning rate": record.lr,
        "seconds a round": record.seconds,
    }
    return {name: value for name, value in found.items() if not isnan(value)}


def run_outcomes(result: RunResult) -> dict[str, float]:
    """Return final accuracies by their names in charts."""
    after = {f"final/after {each.kind}": each.accuracy for each in result.calibrations}
    return {"final/accuracy": result.accuracy} | after


class TensorBoard:
    """Event files in a run's folder, for `tensorboard --logdir`."""

    def __init__(self, folder: Path, title: str) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))
        self._writer.add_text("run", title)

    def log_round(self, record: RoundRecord) -> None:
        for name, value in round_measures(record).items():
            self._writer.add_scalar(name, value, record.round)

    def log_result(self, result: RunResult) -> None:
        for name, value in run_outcomes(result).items():
            self._writer.add_scalar(name, value, len(result.history))
        self._writer.add_text("partition", result.deal.digest)
        self._writer.add_text("seed", str(result.seed))

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class MLflow:
    """A run in the store of MLFLOW_TRACKING_URI, or in `mlflow.sqlite` in the run's folder."""

    def __init__(self, folder: Path, title: str) -> None:
        import mlflow  # noqa: PLC0415 - an extra

        named, file = os.environ.get("MLFLOW_TRACKING_URI"), (folder / "mlflow.sqlite").absolute()
        experiment, _, _ = title.rpartition(" seed ")
        try:
            self._client: Any = mlflow.MlflowClient(named or f"sqlite:///{file}")
            found = self._client.get_experiment_by_name(experiment)
            identifier = found.experiment_id if found else self._client.create_experiment(experiment)
            self._run: str = self._client.create_run(identifier, run_name=title).info.run_id
        except Exception as error:  # MLflow's errors and its stores'
            where = "the store of MLFLOW_TRACKING_URI" if named else file  # an address may hold a password
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise TrackingError(
                f"MLflow can't keep runs in {where}: {reason}; pip install 'veilsum[tracking]' brings what a file needs, "
                "and MLFLOW_TRACKING_URI names another store"
            ) from error

    def log_round(self, record: RoundRecord) -> None:
        for name, value in round_measures(record).items():
            self._client.log_metric(self._run, name, value, step=record.round)

    def log_result(self, result: RunResult) -> None:
        for name, value in run_outcomes(result).items():
            self._client.log_metric(self._run, name, value)
        facts = {"seed": result.seed, "partition": result.deal.digest, "method": result.method}
        for name, fact in facts.items():
            self._client.log_param(self._run, name, fact)

    def close(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, status="FAILED" if failed else "FINISHED")


Tracker = TensorBoard | MLflow
TRACKERS: dict[str, Callable[[Path, str], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


@contextmanager
def open_trackers(names: Sequence[str], folder: Path, title: str) -> Iterator[list[Tracker]]:
    """Open a tracker for each name; the end of the block closes them.

    Raises:
        TrackingError: a name is unknown, its package is not installed, or it cannot be set up.
    """
    with ExitStack() as stack:
        made = []
        for name in names:
            if name not in TRACKERS:
                raise TrackingError(f"no tracker is called {name!r}; there are {', '.join(TRACKERS)}")
            try:
                tracker = TRACKERS[name](folder, title)
            except ImportError as error:
                raise TrackingError(f"{name} needs its extra: pip install 'veilsum[tracking]'") from error
            stack.push(partial(_close_tracker, tracker))
            made.append(tracker)
        yield made


def _close_tracker(tracker: Tracker, kind: type[BaseException] | None, *_: object) -> None:
    tracker.close(failed=kind is not None)
