import numpy as np
import pytest

from client_sdk import Result
from tests.cli.conftest import cli, consortium, held, remote, url
from tests.support.cli import DIM, CliConsortium
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats

__all__ = ["cli", "consortium", "held", "remote", "url"]


@pytest.fixture
def result(held: CliConsortium) -> Result:
    """The verified result of a run of three members, by commands against a served coordinator."""
    found = Result.load(held.result("m0"))
    found.verify(bytes.fromhex(held.admin))
    return found


@pytest.fixture
def centred() -> Calibrated:
    """A head with a centre, as after a noisy mean, and a temperature; it never predicts its last class."""
    rng = np.random.default_rng(3)
    head = Head(
        rng.standard_normal((DIM, 4)), rng.standard_normal(4), (3,), centre=rng.uniform(0.2, 0.5, DIM)
    )
    return Calibrated(head, temperature=0.2)


@pytest.fixture
def around_centre(centred: Calibrated) -> Floats:
    """Features near the direction of the centre, (30, DIM), of lengths whose squares float32 can't hold too."""
    rng = np.random.default_rng(4)
    assert centred.head.centre is not None
    rows = centred.head.centre + 0.2 * rng.standard_normal((30, DIM))
    found: Floats = rows * 10 ** np.linspace(-35, 35, 30)[:, None]
    return found
