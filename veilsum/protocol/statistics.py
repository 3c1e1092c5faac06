"""What a study can sum, and how many numbers that is (wire: Studies)."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Real = Annotated[float, Field(allow_inf_nan=False)]
BANDWIDTH_MIN = 0.1


class StudyBlock(BaseModel):
    """A part of a study's content: immutable, without conversions and unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FFC(StudyBlock):
    """V, U and counts of unit features (Dong et al. 2022, eq. 9), with a constant column if the question has one."""

    kind: Literal["ffc"] = "ffc"

    def width_for(self, dim: int, *, constant: bool) -> int:
        """Return the width l of the second moment V."""
        return dim + constant

    def elements_for(self, dim: int, classes: int, *, constant: bool) -> int:
        """Return the length of the statistic's vector."""
        return _count_moments(self.width_for(dim, constant=constant), classes)

    def class_block_for(self, dim: int, *, constant: bool) -> tuple[int, int]:
        """Return how many numbers one class alone feeds, and the width of the second moment among them; 0 without one."""
        return self.width_for(dim, constant=constant) + 1, 0


class RandomFeaturesFFC(StudyBlock):
    """FFC's sums of `size` random Fourier features of a Gaussian kernel (Fanì et al. 2024)."""

    kind: Literal["random-features"] = "random-features"
    size: Annotated[int, Field(ge=2, le=65_536, multiple_of=2)]
    bandwidth: Annotated[Real, Field(ge=BANDWIDTH_MIN, le=1e3)]

    def width_for(self, dim: int, *, constant: bool) -> int:
        del dim, constant
        return self.size

    def elements_for(self, dim: int, classes: int, *, constant: bool) -> int:
        del dim, constant
        return _count_moments(self.size, classes)

    def class_block_for(self, dim: int, *, constant: bool) -> tuple[int, int]:
        del dim, constant
        return self.size + 1, 0


class CCVR(StudyBlock):
    """Count, sum and second moment of each class (Luo et al. 2021)."""

    kind: Literal["ccvr"] = "ccvr"

    def width_for(self, dim: int, *, constant: bool) -> int:
        """Return the rows of each class's second moment."""
        del constant
        return dim

    def elements_for(self, dim: int, classes: int, *, constant: bool) -> int:
        numbers, _ = self.class_block_for(dim, constant=constant)
        return classes * numbers

    def class_block_for(self, dim: int, *, constant: bool) -> tuple[int, int]:
        del constant
        return 1 + dim + dim * (dim + 1) // 2, dim


Statistic = Annotated[FFC | RandomFeaturesFFC | CCVR, Field(discriminator="kind")]
STATISTICS_ORDER = ("ffc", "random-features", "ccvr")


def _count_moments(rows: int, classes: int) -> int:
    return rows * (rows + 1) // 2 + rows * classes + classes
