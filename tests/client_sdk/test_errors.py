import pytest
from pydantic import ValidationError

from client_sdk.errors import first_fault
from protocol.rest import CohortRequest, RoundRequest, WindowsModel


def test_what_is_wrong_with_json_is_told_with_its_place_and_without_its_values() -> None:
    with pytest.raises(ValidationError) as nested:
        RoundRequest.model_validate(
            {"classes": 3, "extractor": "0a" * 32, "dim": 1, "windows": {"upload_s": "secret"}}
        )
    assert first_fault(nested.value).startswith("windows.upload_s: Input should be a valid number")
    assert "secret" not in first_fault(nested.value)
    with pytest.raises(ValidationError) as whole:
        WindowsModel.model_validate_json(b"{")
    assert first_fault(whole.value, "the body").startswith("the body: Invalid JSON")
    with pytest.raises(ValidationError) as unnamed:
        CohortRequest.model_validate([])
    assert first_fault(unnamed.value).startswith("Input should be")
