import pytest

from veilsum.cli.demo.coordinator import child_environment


def test_children_get_none_of_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILSUM_OPERATOR_TOKEN", "ours")
    monkeypatch.setenv("VEILSUM_URL", "https://elsewhere")
    monkeypatch.setenv("NO_PROXY", "intranet")
    given = child_environment(VEILSUM_DATA_DIR="/data")
    assert {name for name in given if name.startswith("VEILSUM_")} == {"VEILSUM_DATA_DIR"}
    assert given["OMP_NUM_THREADS"] == "1"
    assert given["NO_PROXY"] == given["no_proxy"] == "intranet,127.0.0.1"
