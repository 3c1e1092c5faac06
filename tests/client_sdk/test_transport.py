"""Both drivers, over httpx's mock transport."""

import asyncio
import errno
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk import transport
from client_sdk.effects import Compute, Flow, Pause, Request, Response, Unreached, together
from client_sdk.environment import Environment
from client_sdk.errors import Misuse, PeerFault, Unreachable
from client_sdk.signing import Signer
from client_sdk.transport import AsyncDriver, BlockingDriver, PlainHttpWarning, make_tls_context, name_proxy
from tests.support.raw_http import Script, answering, drip, take_slowly
from tests.support.refusals import refused
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import RequestSignature, Target, content_digest
from veilsum.protocol.rest import MAX_ANSWER_BYTES

URL = "https://sum.example.org/base"
Handler = Callable[[httpx.Request], httpx.Response]
Runner = Callable[..., Any]


def run_blocking(flow: Flow[Any], url: str, **options: Any) -> Any:
    driver = BlockingDriver(url, **options)
    try:
        return driver.run(flow)
    finally:
        driver.close()


def run_on_a_loop(flow: Flow[Any], url: str, **options: Any) -> Any:
    async def main() -> Any:
        driver = AsyncDriver(url, **options)
        try:
            return await driver.run(flow)
        finally:
            await driver.close()

    return asyncio.run(main())


@pytest.fixture(params=[run_blocking, run_on_a_loop], ids=["blocking", "async"])
def real_run(request: pytest.FixtureRequest) -> Runner:
    """Run a flow against a server."""
    runner: Runner = request.param
    return runner


@pytest.fixture
def run(real_run: Runner) -> Runner:
    """Run a flow against a handler."""
    return lambda flow, handler: real_run(flow, URL, transport=httpx.MockTransport(handler))


def one(request: Request) -> Flow[Response | Unreached]:
    outcome: Response | Unreached = yield request
    return outcome


def test_a_flow_that_goes_on_after_close_is_told_so() -> None:
    """Another thread may close a waiting member."""
    driver = BlockingDriver(URL, transport=httpx.MockTransport(lambda _: httpx.Response(200)))

    def flow() -> Flow[None]:
        yield Request("GET", "/v1/x")
        driver.close()
        yield Request("GET", "/v1/x")

    with pytest.raises(Misuse, match="closed"):
        driver.run(flow())


def test_a_request_arrives_as_it_was_meant(run: Runner) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, headers={"Veilsum-Version": "7"}, content=b"answer")

    request = Request("PUT", "/v1/x", b"body", "a/b", {"after": "3"}, wait_s=20.0)
    assert run(one(request), handler) == Response(
        201, {"veilsum-version": "7", "content-length": "6"}, b"answer"
    )
    assert str(seen[0].url) == "https://sum.example.org/base/v1/x?after=3"
    assert (seen[0].content, seen[0].headers["content-type"]) == (b"body", "a/b")
    assert seen[0].extensions["timeout"]["read"] > 20.0
    assert seen[0].extensions["timeout"]["connect"] == 10.0


def test_a_request_is_signed_as_it_goes_out_and_anew_each_time(run: Runner) -> None:
    key, seen = SigningKey(bytes(32)), list[httpx.Request]()

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    signer = Signer("ann", key, Environment(now_s=lambda: 1000.0))
    assert repr(signer) == "<Signer ann>"
    for request in [Request("PUT", "/v1/é", b"body", params={"a": "b c"}, signer=signer)] * 2:
        assert run(one(request), handler).status == 200
    nonces = set()
    for sent in seen:
        signature = RequestSignature.parse(sent.headers["signature-input"], sent.headers["signature"])
        target = Target("PUT", "sum.example.org", "/base/v1/%C3%A9", sent.url.query.decode())
        signature.verify(key.public, target, content_digest(b"body"))
        signature.check_time(1000.0, 0.0)
        nonces.add(signature.nonce)
    assert len(nonces) == 2


def test_what_the_coordinator_sets_as_cookies_is_not_kept(run: Runner) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204, headers={"set-cookie": f"name-{len(seen)}={'x' * 1000}; Path=/"})

    def flow() -> Flow[None]:
        for _ in range(3):
            yield Request("GET", "/v1/x")

    run(flow(), handler)
    assert ["cookie" in request.headers for request in seen] == [False] * 3


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (httpx.ConnectError("refused"), False),
        (httpx.ConnectTimeout(""), False),
        (httpx.ReadTimeout(""), True),
        (httpx.RemoteProtocolError("gone"), True),
    ],
)
def test_what_does_not_arrive_is_an_outcome(run: Runner, error: Exception, *, sent: bool) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    outcome = run(one(Request("GET", "/")), handler)
    assert isinstance(outcome, Unreached)
    assert (outcome.reason.startswith(type(error).__name__), outcome.sent) == (True, sent)


def tls_error(reason: str) -> ssl.SSLError:
    """Return OpenSSL's error of this reason."""
    error = ssl.SSLError(1, "a handshake")
    error.reason = reason
    return error


def test_an_untrusted_certificate_ends_at_once(run: Runner) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        untrusted = ssl.SSLCertVerificationError()
        untrusted.verify_message = "self-signed certificate"
        raise httpx.ConnectError("failed") from untrusted

    with pytest.raises(Unreachable, match=r"self-signed certificate.*--ca.*verify="):
        run(one(Request("GET", "/")), handler)


@pytest.mark.parametrize(
    "reason",
    ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_CERTIFICATE_EXPIRED"],
)
def test_a_certificate_that_is_asked_for_ends_at_once(run: Runner, reason: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("failed") from tls_error(reason)

    with pytest.raises(Unreachable, match=rf"{reason}\).*--client-cert.*cert="):
        run(one(Request("GET", "/")), handler)


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "HTTP_REQUEST"])
def test_a_port_without_tls_ends_at_once(run: Runner, reason: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("failed") from tls_error(reason)

    with pytest.raises(Unreachable, match=rf"{reason}\).*http://"):
        run(one(Request("GET", "/")), handler)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (OSError(errno.EHOSTUNREACH, "a translation"), os.strerror(errno.EHOSTUNREACH)),
        (ExceptionGroup("two addresses", [OSError(errno.ENETDOWN, "")]), os.strerror(errno.ENETDOWN)),
        (socket.gaierror(-2, "no such name"), "no such name"),
        (OSError("all attempts failed"), "failed"),
        (tls_error("BAD_EXTENSION"), "failed"),
    ],
)
def test_a_connection_fails_for_the_reason_of_its_system(run: Runner, cause: Exception, reason: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("failed") from cause

    assert run(one(Request("GET", "/")), handler).reason == f"ConnectError: {reason}"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    real_run: Runner, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv(variable, f"ann:secret@127.0.0.1:{port}")
    outcome = real_run(one(Request("GET", "/")), "http://127.0.0.1:1")
    assert isinstance(outcome, Unreached)
    shown = name_proxy("http://127.0.0.1:1")
    assert shown == f"the proxy http://127.0.0.1:{port} ({variable})"
    assert shown in outcome.reason
    assert "Connection refused" in outcome.reason
    assert "secret" not in outcome.reason
    assert not outcome.sent
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert name_proxy("http://127.0.0.1:1") is None
    assert "proxy" not in real_run(one(Request("GET", "/")), "http://127.0.0.1:1").reason
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv(variable, "ftp://ann:secret@127.0.0.1")
    with pytest.raises(Misuse, match=variable) as caught:
        real_run(one(Request("GET", "/")), "http://127.0.0.1:1")
    assert "secret" not in str(caught.value)


def test_http_to_a_port_with_tls_names_the_scheme() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset", request=request)

    driver = BlockingDriver("http://127.0.0.1:8000", transport=httpx.MockTransport(handler))
    unreached = driver.run(one(Request("GET", "/")))
    driver.close()
    assert isinstance(unreached, Unreached)
    assert "https://" in unreached.reason


@pytest.mark.parametrize("status", [200, 399])
def test_a_body_beyond_its_limit_is_refused(run: Runner, status: int) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=b"0123456789")

    assert run(one(Request("GET", "/", limit_bytes=10)), handler).body == b"0123456789"
    with refused("oversized", "coordinator"):
        run(one(Request("GET", "/", limit_bytes=9)), handler)


@pytest.mark.parametrize("status", [400, 503])
def test_a_refusal_beyond_its_limit_is_cut(run: Runner, status: int) -> None:
    pages = iter([b"x" * MAX_ANSWER_BYTES, b"x"])

    class Pages(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from pages

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for page in pages:
                yield page

    answer = run(one(Request("GET", "/")), lambda _: httpx.Response(status, stream=Pages()))
    assert (answer.status, len(answer.body)) == (status, MAX_ANSWER_BYTES)


@pytest.mark.parametrize("encoding", ["gzip, gzip, gzip", "GZIP", "identity, deflate", "unknown"])
def test_an_encoded_answer_is_refused_unread(run: Runner, encoding: str) -> None:
    read: list[bytes] = []

    class Bomb(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            read.append(b"x")
            yield b"x"

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read.append(b"x")
            yield b"x"

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, headers={"content-encoding": encoding}, stream=Bomb())

    with refused("malformed", "coordinator"):
        run(one(Request("GET", "/")), handler)
    assert read == []


@pytest.mark.parametrize("location", ["https://xn--a.example.org", "javascript:login()"])
def test_a_redirect_to_no_address_counts_as_no_answer(run: Runner, location: str) -> None:
    moved = httpx.Response(302, headers={"location": location})
    assert run(one(Request("GET", "/")), lambda _: moved).sent


HEAD = b"HTTP/1.1 200 OK\r\n"
HANDSHAKE = drip(b"\x16\x03\x03\x40\x00", b"\0")
"""A record of 16 kB, byte by byte."""


@pytest.fixture
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("_short_timeouts")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(HANDSHAKE, id="handshake"),
        pytest.param(drip(b"", b""), id="nothing"),
        pytest.param(drip(HEAD + b"x: ", b"x"), id="header"),
        pytest.param(drip(HEAD + b"content-length: 100000\r\n\r\n", b"x"), id="body"),
        pytest.param(take_slowly, id="request"),
    ],
)
def test_a_request_ends_by_its_deadline_whatever_is_sent(
    real_run: Runner, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    body = bytes(5_000_000) if script is take_slowly else b"body"
    monkeypatch.setattr(transport, "BYTES_PER_S_MIN", max(8192, 2 * len(body)))
    with answering(script) as url:
        begun_s = time.monotonic()
        address = url.replace("http:", "https:") if script is HANDSHAKE else url
        outcome = real_run(one(Request("PUT", "/", body)), address)
        spent_s = time.monotonic() - begun_s
    assert isinstance(outcome, Unreached)
    assert outcome.sent == (script is not HANDSHAKE)
    assert spent_s < 2.0


@pytest.mark.usefixtures("_short_timeouts")
def test_an_answer_has_as_long_as_a_slow_line_takes(
    real_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "BYTES_PER_S_MIN", 1000)
    size = 50 * 40  # over at least half a second
    with answering(drip(HEAD + b"content-length: %d\r\n\r\n" % size, b"x" * 40)) as url:
        outcome = real_run(one(Request("GET", "/")), url)
        assert outcome.body == b"x" * size
        assert isinstance(real_run(one(Request("GET", "/", limit_s=0.25)), url), Unreached)


def test_a_long_poll_has_its_wait_and_the_timeouts(real_run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONNECT_TIMEOUT_S", "READ_TIMEOUT_S"):
        monkeypatch.setattr(transport, name, 0.5)
    with answering(drip(b"", HEAD + b"content-length: 0\r\n\r\n", every_s=0.75)) as url:
        assert real_run(one(Request("GET", "/", wait_s=0.5)), url).status == 200


def test_an_exception_reaches_the_flow_which_may_go_on(run: Runner) -> None:
    def fail() -> None:
        raise KeyError("x")

    def flow() -> Flow[str]:
        try:
            yield Compute(fail)
        except KeyError:
            outcome: str = yield Compute(lambda: "went on")
            return outcome
        raise AssertionError

    assert run(flow(), lambda _: httpx.Response(200)) == "went on"


def test_the_first_failure_stops_the_other_lanes(run: Runner) -> None:
    steps: list[int] = []

    def endless() -> Flow[None]:
        while True:
            yield Compute(lambda: time.sleep(0.001))
            steps.append(1)

    def broken() -> Flow[None]:
        yield Compute(lambda: time.sleep(0.02))
        raise PeerFault(Cause.CONFLICT)

    with refused("conflict"):
        run(together([endless(), broken(), endless()], 2), lambda _: httpx.Response(200))
    assert 0 < len(steps) < 1000


@pytest.mark.parametrize(
    "url",
    [
        "sum.example.org",
        "user:password@sum.example.org",
        "ftp://x",
        "",
        "https://",
        "https://x:99999",
        "https://x:y",
        "https://x\r",
        "https://x..y",
        "https://.x",
        "https://xn--a.org",
        f"https://{'x' * 64}.org",
        f"https://{'ü' * 64}.org",
    ],
)
def test_an_address_has_a_scheme_and_a_host(url: str) -> None:
    for driver in (BlockingDriver, AsyncDriver):
        with pytest.raises(Misuse, match="https://") as caught:
            driver(url)
        assert "password" not in str(caught.value)


def test_a_network_without_tls_is_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    for driver in (BlockingDriver, AsyncDriver):
        with pytest.warns(PlainHttpWarning):
            driver("http://sum.example.org")
    recwarn.clear()
    for url in ("http://127.0.0.1:8000", "http://localhost", URL):
        BlockingDriver(url).close()
    assert not recwarn.list
    assert not make_tls_context("http://localhost", True, None).get_ca_certs()


def test_tls_is_verified_unless_told_otherwise(tmp_path: Path) -> None:
    url = "https://sum.example.org"
    checked, unchecked = make_tls_context(url, True, None), make_tls_context(url, False, None)
    assert (checked.verify_mode, checked.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.raises(Misuse, match=r"^verify: .*none.pem"):
        make_tls_context(url, str(tmp_path / "none.pem"), None)
    for cert in (str(tmp_path / "none.pem"), (str(tmp_path / "a"), str(tmp_path / "b"))):
        with pytest.raises(Misuse, match=r"^cert: "):
            make_tls_context(url, True, cert)


@pytest.mark.parametrize("apart", [False, True])
def test_a_client_s_key_that_others_may_read_is_refused(tmp_path: Path, *, apart: bool) -> None:
    """Its group may, as orchestrators mount secrets. A certificate is public."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.touch(0o644)
    key.touch()
    cert = (str(certificate), str(key)) if apart else str(key)
    for mode, said in ((0o644, "chmod"), (0o640, r"^cert: ")):
        key.chmod(mode)
        with pytest.raises(Misuse, match=said):
            make_tls_context(URL, True, cert)


async def test_a_flows_own_steps_leave_the_event_loop_free() -> None:
    def flow() -> Flow[str]:
        time.sleep(0.1)
        yield Pause(0.0)
        time.sleep(0.1)
        return "done"

    async def ticks() -> int:
        count = 0
        while not running.done():
            await asyncio.sleep(0.005)
            count += 1
        return count

    driver = AsyncDriver(URL)
    running = asyncio.create_task(driver.run(flow()))
    assert await ticks() >= 5  # one at most, where steps block the loop
    assert await running == "done"
    await driver.close()


async def test_what_a_flow_computes_stays_in_its_thread_until_it_is_cancelled() -> None:
    threads = set[int]()

    def note() -> None:
        threads.add(threading.get_ident())

    def fail() -> None:
        note()
        raise KeyError

    def flow() -> Flow[str]:
        yield Compute(note)
        try:
            yield Compute(fail)
        except KeyError:
            yield Compute(note)
        return "done"

    def endless() -> Flow[None]:
        while True:
            yield Compute(lambda: time.sleep(0.001))

    driver = AsyncDriver(URL)
    assert await driver.run(flow()) == "done"
    assert len(threads) == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(driver.run(endless()), 0.05)
    await driver.close()


async def test_a_pause_is_slept() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def flow() -> Flow[str]:
        yield Pause(2.5)
        return "awake"

    driver = AsyncDriver(URL, sleep=sleep)
    assert await driver.run(flow()) == "awake"
    assert slept == [2.5]
    await driver.close()


@pytest.mark.parametrize("lanes", [False, True])
async def test_a_cancelled_flow_waits_for_its_thread_however_often_it_is_cancelled(*, lanes: bool) -> None:
    begun, goes_on, finished = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        goes_on.wait(60)
        finished.append("a step")

    def slow() -> Flow[None]:
        yield Compute(work)

    def quick() -> Flow[None]:
        yield Pause(60.0)

    driver = AsyncDriver(URL)
    flow: Flow[Any] = together([slow(), quick()], 2) if lanes else slow()
    task = asyncio.create_task(driver.run(flow))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert finished == ["a step"]
    await driver.close()
