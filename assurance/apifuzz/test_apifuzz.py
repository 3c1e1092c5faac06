"""A short campaign of `make api-fuzz`."""

from pathlib import Path

import pytest

from assurance.apifuzz.run import campaign


@pytest.mark.slow
def test_no_case_is_answered_by_a_5xx(tmp_path: Path) -> None:
    found = campaign(tmp_path, examples=3, seed=1)
    assert found["faults"] == []
    assert found["answers_of_5xx"] == 0
    assert found["cases"] > 250
    assert found["alive_afterwards"]
