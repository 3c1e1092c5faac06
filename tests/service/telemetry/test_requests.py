"""What a running coordinator logs, counts and traces: enough to find a request, and nothing that a member would object to."""

import asyncio
import io
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.http.problems import note_refusal, status_of
from service.telemetry import logs, metrics
from tests.service.telemetry.conftest import Lines
from tests.support.party import Party
from tests.support.serving import TOKEN, Server, read_metric
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault

CANARY = "canary-91c0"


async def test_an_answer_is_found_again_by_its_id(
    server: Server, formed: Party, stream: io.StringIO, lines: Lines
) -> None:
    round_id = await formed.open_round(server)
    answer = await server.client.get(
        f"/v1/rounds/{round_id}/result", headers={rest.REQUEST_ID_HEADER: CANARY}
    )
    named = answer.headers[rest.REQUEST_ID_HEADER]
    refused, request = [line for line in lines() if line.get("request") == named]
    assert (refused["event"], refused["cause"], refused["round"]) == ("refused", "wrong-phase", round_id)
    assert (request["event"], request["route"], request["status"]) == ("request", rest.RESULT_PATH, 409)
    assert request["round"] == round_id
    assert request["ms"] >= 0
    assert CANARY not in stream.getvalue()


async def test_nothing_that_a_stranger_sends_is_logged(
    server: Server, stream: io.StringIO, lines: Lines
) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS", "PROPFIND"):
        await server.client.request(
            method,
            f"/v1/rounds/{CANARY}?{CANARY}={CANARY}",
            headers={"authorization": f"Bearer {CANARY}", "cookie": CANARY, "content-type": CANARY},
            content=CANARY,
        )
        await server.client.request(method, f"/{CANARY}", json={CANARY: CANARY})
    assert len(lines()) >= 10
    assert CANARY not in stream.getvalue()
    assert read_metric("veilsum_request_seconds_count", method="other", route="none", status="404") >= 1


async def test_a_round_is_counted_and_its_end_is_one_line(
    server: Server, formed: Party, lines: Lines
) -> None:
    before = read_metric("veilsum_upload_bytes_total")
    ended = read_metric("veilsum_rounds_ended_total", state="done")
    round_id = await formed.done(server)
    await server.tidy(round_id)
    assert read_metric("veilsum_rounds_ended_total", state="done") == ended + 1
    [end] = [line for line in lines() if line["event"] == "round ended"]
    assert (end["round"], end["state"], end["cause"], end["survivors"]) == (round_id, "done", None, 4)
    chunks = sum(len(chunk) for member in formed.ids for chunk in formed.chunks[member])
    assert read_metric("veilsum_upload_bytes_total") - before == chunks


async def test_metrics_are_made_once_for_all_who_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, makers = [0], set[str]()

    def latest(_: object) -> bytes:
        made[0] += 1
        makers.add(threading.current_thread().name)
        return b"%d" % made[0]

    monkeypatch.setattr(metrics, "generate_latest", latest)
    exposition = metrics.Exposition()
    assert await asyncio.gather(*(exposition.render_text() for _ in range(5))) == [b"1"] * 5
    monkeypatch.setattr(metrics, "EXPOSITION_CACHED_S", 0.0)
    exposition = metrics.Exposition()
    assert [await exposition.render_text() for _ in range(2)] == [b"2", b"3"]
    assert threading.main_thread().name not in makers


async def test_metrics_name_every_cause_and_state_from_the_start(server: Server, formed: Party) -> None:
    await formed.open_round(server)
    before = read_metric("veilsum_refusals_total", cause="not-found")
    await server.client.get(f"/v1/rounds/{'0' * 16}")
    answer = await server.anonymous().get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for cause in Cause:
        assert f'veilsum_refusals_total{{cause="{cause.value}"}}' in answer.text
    assert 'veilsum_rounds{state="collecting"} 1.0' in answer.text
    assert 'veilsum_rounds{state="done"} 0.0' in answer.text
    assert read_metric("veilsum_refusals_total", cause="not-found") == before + 1


def test_every_cause_that_is_noted_is_one_line_and_one_count(stream: io.StringIO, lines: Lines) -> None:
    for cause in Cause:
        before = read_metric("veilsum_refusals_total", cause=cause.value)
        problem = note_refusal(PeerFault(cause, CANARY, ["hospital-a"]), about={"round": "00ff"})
        said = {"event": "refused", "cause": cause.value, "status": problem.status}
        assert lines()[-1].items() >= {**said, "round": "00ff"}.items()
        assert problem.type == f"{rest.PROBLEM_BASE}{cause.value}"
        assert problem.status == status_of(cause) >= 400
        assert read_metric("veilsum_refusals_total", cause=cause.value) == before + 1
    assert len(lines()) == len(Cause)
    assert CANARY not in stream.getvalue()
    assert "hospital-a" not in stream.getvalue()  # docs/concepts/privacy-guide.md: no member's name


async def test_the_loop_lag_is_measured() -> None:
    before = read_metric("veilsum_event_loop_lag_seconds_count")
    task = asyncio.create_task(metrics.watch_loop(0.01))
    await asyncio.sleep(0.1)
    task.cancel()
    assert read_metric("veilsum_event_loop_lag_seconds_count") > before


def test_traces_are_off_until_the_environment_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in logs.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert logs.configure_tracing()["tracing"] is False
    assert logs.configure_tracing()["auto_configure"] is False
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert logs.configure_tracing()["tracing"] is True
    assert logs.configure_tracing()["metrics"] is False
    monkeypatch.setattr(logs, "_TRACING_MODULES", ("opentelemetry.no_such", "no_such_parent.child"))
    with pytest.raises(Misuse, match=r"veilsum\[service,otel\]"):
        logs.configure_tracing()


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
