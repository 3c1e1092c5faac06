"""The quick part of `make api-fuzz`."""

from pathlib import Path

import pytest

from assurance.apifuzz.run import campaign


@pytest.mark.parametrize(("examples", "cases"), [(1, 80), pytest.param(3, 250, marks=pytest.mark.slow)])
def test_no_case_is_answered_by_a_5xx(tmp_path: Path, examples: int, cases: int) -> None:
    found = campaign(tmp_path, examples=examples, seed=1)
    assert found["faults"] == []
    assert found["answers_of_5xx"] == 0
    assert found["cases"] > cases
    assert found["alive_afterwards"]
