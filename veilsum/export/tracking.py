"""Log a result to MLflow or TensorBoard. What only members may read is left out by default."""

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


def run_facts(result: Result) -> dict[str, str]:
    """Names of the run and its study."""
    record = result.record
    return {
        "round": record.round,
        "federation": record.federation,
        "study": f"{record.name}, version {record.version}",
        "period": record.period,
        "step": record.step,
        "statistics": ", ".join(each.kind for each in result.spec.question.statistics),
        "extractor": result.spec.question.extractor,
        "noise": "none" if record.noise is None else record.noise.model_dump_json(),
        "head": record.head or "none",
        "withheld": ", ".join(map(str, record.withheld)) or "none",
    }


def result_figures(result: Result) -> dict[str, float]:
    """A result's counts, and how its head was solved."""
    record = result.record
    solution = record.solution
    found: dict[str, float | None] = {
        "members": result.spec.members,
        "survivors": len(result.survivors),
        "summed": len(result.summed),
        "counted": result.counted,
        "rows": record.rows,
        "ridge": solution.ridge,
        "effective_dof": solution.dof,
        "condition": solution.condition,
        "residual": solution.residual,
        "rank": solution.rank,
        "error_bound": record.error_bound,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def log_to_mlflow(result: Result, *, for_members: bool = False, **measured: float) -> None:
    """Log a result to the active MLflow run, or to a new one: parameters, metrics, and the files of `Result.save` as artifacts.

    Args:
        result: verified before.
        for_members: also log what the coordinator shows only to members: the documents beside the head, pooled sums among
            them. Without them the artifacts can't be verified.
        measured: your own figures, such as an accuracy.
    """
    import mlflow  # noqa: PLC0415 - an extra: pip install 'veilsum[tracking]'

    mlflow.log_params({f"veilsum.{name}": value for name, value in run_facts(result).items()})
    mlflow.log_metrics(
        {f"veilsum.{name}": value for name, value in (result_figures(result) | measured).items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        (result if for_members else replace(result, document_files={}, material_file=None)).save(folder)
        mlflow.log_artifacts(folder, "veilsum")


def log_to_tensorboard(result: Result, writer: Writer, step: int | None = None, **measured: float) -> None:
    """Write a result's figures as scalars and its facts as a table of words.

    Args:
        result: verified before.
        writer: of any TensorBoard library.
        step: where on the axis.
        measured: your own figures, such as an accuracy.
    """
    for name, value in (result_figures(result) | measured).items():
        writer.add_scalar(f"veilsum/{name}", value, step)
    rows = "".join(f"| {name} | {value} |\n" for name, value in run_facts(result).items())
    writer.add_text("veilsum/round", f"| | |\n|---|---|\n{rows}", step)
