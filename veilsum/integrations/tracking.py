"""A result in the books of an experiment tracker: MLflow's runs, TensorBoard's scalars. What members alone may read stays out, unless asked for."""

import tempfile
from dataclasses import replace
from typing import Any, Protocol

from client_sdk.result import Result


class Writer(Protocol):
    """What `torch.utils.tensorboard.SummaryWriter` and `tensorboardX.SummaryWriter` have in common."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> Any:
        """Chart a number over the steps."""

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> Any:
        """Keep a text beside the charts of a step."""


def facts(result: Result) -> dict[str, str]:
    """What names a round and what was agreed on."""
    record = result.record
    return {
        "round": record.round,
        "federation": record.federation,
        "cohort": record.cohort,
        "statistic": record.statistic,
        "extractor": record.extractor,
        "noise": record.noise if isinstance(record.noise, str) else record.noise.model_dump_json(),
        "weights_sha256": record.weights_sha256 or "no head",
        "withheld": ", ".join(map(str, record.withheld)) or "none",
    }


def figures(result: Result) -> dict[str, float]:
    """A result's counts, and how its head was solved, by the names that charts have."""
    record = result.record
    solution = record.solution
    found: dict[str, float | None] = {
        "members": record.members,
        "survivors": len(result.survivors),
        "summed": len(result.summed),
        "counted": result.counted,
        "records": record.records,
        "ridge": solution.ridge,
        "effective_dof": solution.dof,
        "condition": solution.condition,
        "residual": solution.residual,
        "rank": solution.rank,
        "weights_error_bound": record.weights_error_bound,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def log_to_mlflow(result: Result, *, for_members: bool = False, **measured: float) -> None:
    """Log a result to the active MLflow run, or to a new one: parameters, metrics, and the files of `Result.save` as artifacts.

    Args:
        result: verified before.
        for_members: log also what the coordinator shows to members alone: the documents beside the head, pooled sums among
            them, and what the question rested on. Where a result has some, its artifacts are not whole without.
        measured: your own figures, such as an accuracy.
    """
    import mlflow  # noqa: PLC0415 - an extra: pip install 'veilsum[tracking]'

    mlflow.log_params({f"veilsum.{name}": value for name, value in facts(result).items()})
    mlflow.log_metrics({f"veilsum.{name}": value for name, value in (figures(result) | measured).items()})
    with tempfile.TemporaryDirectory() as folder:
        (result if for_members else replace(result, documents={}, material=None)).save(folder)
        mlflow.log_artifacts(folder, "veilsum")


def log_to_tensorboard(result: Result, writer: Writer, step: int | None = None, **measured: float) -> None:
    """Write a result's figures as scalars and its facts as a table of words.

    Args:
        result: verified before.
        writer: of any TensorBoard library.
        step: where on the axis.
        measured: your own figures, such as an accuracy.
    """
    for name, value in (figures(result) | measured).items():
        writer.add_scalar(f"veilsum/{name}", value, step)
    rows = "".join(f"| {name} | {value} |\n" for name, value in facts(result).items())
    writer.add_text("veilsum/round", f"| | |\n|---|---|\n{rows}", step)
