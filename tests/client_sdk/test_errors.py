import pytest
from pydantic import ValidationError

from client_sdk.errors import first_fault
from protocol.rest import CohortRequest, WindowsModel
from protocol.scheduling import ScheduleRequest


def test_what_is_wrong_with_json_is_told_with_its_place_and_without_its_values() -> None:
    with pytest.raises(ValidationError) as nested:
        ScheduleRequest.model_validate(
            {"at_s": 1.0, "round": {"classes": 3, "extractor": "secret", "dim": 1}}
        )
    assert first_fault(nested.value).startswith("round.extractor: String should match pattern")
    assert "secret" not in first_fault(nested.value)
    with pytest.raises(ValidationError) as whole:
        WindowsModel.model_validate_json(b"{")
    assert first_fault(whole.value, "the body").startswith("the body: Invalid JSON")
    with pytest.raises(ValidationError) as unnamed:
        CohortRequest.model_validate([])
    assert first_fault(unnamed.value).startswith("Input should be")
