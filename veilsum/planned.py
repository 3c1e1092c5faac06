"""The plan of a noisy round in a file: `veilsum privacy plan` writes it, `veilsum operator round open --plan` takes it."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from client_sdk.errors import first_fault
from client_sdk.operator import Operator
from protocol.errors import Misuse
from protocol.rest import Model, NoiseRequest, Parameter


class SavedPlan(Model):
    """What a plan fixes of a round, and the cohort that it was made for.

    Attributes:
        records: N that the verdict was made for.
        statistic: the question; ffc with a bias is ffc-bias.
        parameters: of the question.
        members: n.
        survivors_min: n_min.
        colluders: a.
    """

    format: Literal["veilsum-plan/1"] = "veilsum-plan/1"
    records: int
    dim: int
    classes: int
    bias: bool
    members: int
    survivors_min: int
    colluders: int
    noise: NoiseRequest
    statistic: str = "ffc"
    parameters: dict[str, Parameter] = Field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "SavedPlan":
        """Read what `save` wrote; Misuse where that is no plan."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise Misuse(
                f"{path} is no plan ({first_fault(error)}): make one with `veilsum privacy plan --output`"
            ) from error

    def save(self, path: Path) -> None:
        """Write the plan to a file, as JSON that `load` reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=2) + "\n", "utf-8")

    @property
    def request(self) -> dict[str, Any]:
        """The fields of a `RoundRequest` that it fixes."""
        noise = self.noise.model_dump()
        fixed = {"dim": self.dim, "classes": self.classes, "noise": noise}
        if self.statistic in {"ffc", "ffc-bias"}:
            return {**fixed, "bias": self.bias}
        more = {"bias": True} if self.bias else {}
        return {**fixed, "statistic": self.statistic, "parameters": {**more, **self.parameters}}

    def check_cohort(self, client: Operator, cohort: str) -> None:
        """Refuse a cohort of other numbers than planned for: its noise would be another, and so would what it costs (Misuse)."""
        quorum = client.cohort(cohort).quorum
        if quorum is None:
            return  # the coordinator says what it waits for
        for name in ("members", "survivors_min", "colluders"):
            planned, seen = getattr(self, name), getattr(quorum, name)
            if planned != seen:
                raise Misuse(
                    f"the plan is for {name} = {planned}, the cohort has {seen}: make another with "
                    f"`veilsum privacy plan --members {quorum.members} --colluders {quorum.colluders}`"
                )
