import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from protocol.errors import Misuse
from service.telemetry import traces
from tests.service.serving import TOKEN, Server


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in traces.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)


def test_traces_are_off_until_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces.tracing()["tracing"] is False
    assert traces.tracing()["auto_configure"] is False
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert traces.tracing()["tracing"] is True
    assert traces.tracing()["metrics"] is False


def test_where_the_extra_is_missing_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setattr(traces, "_EXTRA", ("opentelemetry.no_such", "no_such_parent.child"))
    with pytest.raises(Misuse, match=r"veilsum\[service,otel\]"):
        traces.tracing()


async def test_a_span_names_the_route_and_holds_nothing_of_headers_or_bodies(server: Server) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    native = server.app._native_telemetry
    server.app._telemetry.update(tracer_provider=provider, tracing=True)
    server.app._native_telemetry = type(native)(server.app._telemetry)
    await server.client.post(
        f"/v1/federations/{'0' * 64}/cohorts",
        json={"study": "0" * 64, "period": "p"},
        headers={"cookie": "canary-33"},
    )
    [span] = exporter.get_finished_spans()
    assert span.name == "POST /v1/federations/{federation}/cohorts"
    assert "canary-33" not in span.to_json()
    assert TOKEN not in span.to_json()
    assert "period" not in span.to_json()
