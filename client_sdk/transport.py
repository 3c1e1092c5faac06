"""The two drivers that carry out a flow's effects; the only place that knows httpx.

Both send, sleep, compute and run lanes; what to send, when to try again and what an answer means is the
flows' business.
"""

import asyncio
import os
import re
import ssl
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from functools import partial, wraps
from http.cookiejar import CookieJar, DefaultCookiePolicy
from io import BytesIO
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from client_sdk.deadline import DeadlineBackend, keep_deadline
from client_sdk.effects import Compute, Effect, Flow, Pause, Request, Response, Together, Unreached
from client_sdk.errors import Misuse, PeerFault, Unreachable
from veilsum.protocol.causes import Cause
from veilsum.protocol.request_signature import Target
from veilsum.protocol.rest import MAX_ANSWER_BYTES
from veilsum.system.exposure import in_the_clear, refuse_loose_mode

T = TypeVar("T")
P = ParamSpec("P")
Flows = TypeVar("Flows")

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 10.0, 30.0
"""Timeouts in seconds for a connection, and for an answer beyond the time of a long poll."""
BYTES_PER_S_MIN = 8192
"""The slowest line that a request is given time for, in both directions: coordinators refuse slower uploads."""

ClientCertificate = str | tuple[str, str]
"""A PEM file with certificate and key, or both files."""


class PlainHttpWarning(UserWarning):
    """The coordinator is reached over a network without TLS."""


class Stopped(Exception):  # noqa: N818 - no error: another lane failed
    """Ends the other lanes of a `Together` after one failed."""


class BlockingDriver:
    """Runs flows on the calling thread; only lanes have threads.

    Args:
        url: the coordinator's address.
        verify: True for the system's authorities, a path to a PEM file of others, False to check nothing.
        cert: this client's certificate if the coordinator asks for one.
        sleep: waits, in seconds.
        transport: httpx's, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        options = _client_options(url, verify, cert)
        self._sleep, self._way = sleep, _Way.of_url(url)
        if transport is None:
            transport = _with_proxy(httpx.HTTPTransport, options["verify"], self._way)
            transport._pool._network_backend = DeadlineBackend()  # noqa: SLF001 - httpcore takes it as an argument, httpx does not
        self._client = httpx.Client(**options, transport=transport)

    def run(self, flow: Flow[T], stop: threading.Event | None = None) -> T:
        try:
            effect = next(flow)
            while True:
                if stop is not None and stop.is_set():
                    raise Stopped
                try:
                    outcome = self._perform_effect(effect)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the flow's to handle
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            flow.close()

    def close(self) -> None:
        self._client.close()

    def _perform_effect(self, effect: Effect) -> Any:
        match effect:
            case Request():
                return self._send_request(effect)
            case Pause(seconds):
                return self._sleep(seconds)
            case Compute(work):
                return work()
            case _:
                return self._run_together(effect)

    def _send_request(self, request: Request) -> Response | Unreached:
        with keep_deadline(_compute_limit_s(request, 0)) as deadline:
            try:
                with closing(self._client.send(_build_request(self._client, request), stream=True)) as answer:
                    _check_plain(answer, request)
                    body = BytesIO()
                    for piece in answer.iter_bytes():
                        if not _extend_body(body, piece, answer, request):
                            break
                        deadline.limit_s = _compute_limit_s(request, body.tell())
                    return _read_response(answer, body)
            except TimeoutError:
                return _late_answer(deadline.spent_s)
            except _FAILURES as error:
                return _explain_error(error, request, self._way)

    def _run_together(self, effect: Together[T]) -> list[T]:
        stop = threading.Event()

        def lane(flow: Flow[T]) -> T:
            if stop.is_set():
                raise Stopped
            try:
                return self.run(flow, stop)
            except BaseException:
                stop.set()
                raise

        with ThreadPoolExecutor(effect.lanes, thread_name_prefix="veilsum") as pool:
            futures = [pool.submit(lane, flow) for flow in effect.flows]
            try:
                for future in futures:
                    future.exception()
            finally:
                stop.set()  # also where this thread is interrupted while it waits
        errors = [error for error in (future.exception() for future in futures) if error is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error
        return [future.result() for future in futures]


class _Blocking(Protocol[Flows]):
    """Has flows, and a driver that runs them."""

    _driver: BlockingDriver
    _flows: Flows


def blocking_method(
    flow: Callable[Concatenate[Flows, P], Flow[T]],
) -> Callable[Concatenate[_Blocking[Flows], P], T]:
    """Turn a flow into a method that blocks."""

    @wraps(flow)
    def method(self: _Blocking[Flows], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._driver.run(flow(self._flows, *args, **kwargs))

    return method


class AsyncDriver:
    """Sends on the event loop; a flow's own steps and computations run in threads, one at a time.

    Args as for `BlockingDriver`.
    """

    def __init__(
        self,
        url: str,
        *,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        options = _client_options(url, verify, cert)
        self._sleep, self._way = sleep, _Way.of_url(url)
        self._loop: asyncio.AbstractEventLoop | None = None
        if transport is None:
            transport = _with_proxy(httpx.AsyncHTTPTransport, options["verify"], self._way)
        self._client = httpx.AsyncClient(**options, transport=transport)

    async def run(self, flow: Flow[T]) -> T:
        self._check_loop()
        self._loop = asyncio.get_running_loop()
        try:
            step = await _in_thread(flow, flow.send, None)
            while not isinstance(step, _End):
                try:
                    outcome = await self._perform_effect(step)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the flow's to handle
                    step = await _in_thread(flow, flow.throw, error)
                else:
                    step = await _in_thread(flow, flow.send, outcome)
            result: T = step.result
            return result
        finally:
            flow.close()

    async def close(self) -> None:
        self._check_loop()
        await self._client.aclose()

    def _check_loop(self) -> None:
        """Raise Misuse outside the event loop that the connections belong to."""
        if self._loop not in {None, asyncio.get_running_loop()}:
            raise Misuse(
                "used in another event loop before: create, use and close it within one `asyncio.run`"
            )

    async def _perform_effect(self, effect: "_Waiting") -> Any:
        match effect:
            case Request():
                return await self._send_request(effect)
            case Pause(seconds):
                return await self._sleep(seconds)
            case _:
                return await self._run_together(effect)

    async def _send_request(self, request: Request) -> Response | Unreached:
        now_s = asyncio.get_running_loop().time
        begun_s = now_s()
        try:
            async with (
                asyncio.timeout_at(begun_s + _compute_limit_s(request, 0)) as deadline,
                aclosing(
                    await self._client.send(_build_request(self._client, request), stream=True)
                ) as answer,
            ):
                _check_plain(answer, request)
                body = BytesIO()
                async for piece in answer.aiter_bytes():
                    if not _extend_body(body, piece, answer, request):
                        break
                    deadline.reschedule(begun_s + _compute_limit_s(request, body.tell()))
                return _read_response(answer, body)
        except TimeoutError:
            return _late_answer(now_s() - begun_s)
        except (*_FAILURES, ssl.SSLError) as error:  # anyio passes on what TLS reads
            return _explain_error(error, request, self._way)

    async def _run_together(self, effect: Together[T]) -> list[T]:
        results: dict[int, T] = {}
        waiting = iter(enumerate(effect.flows))

        async def lane() -> None:
            for index, flow in waiting:
                results[index] = await self.run(flow)

        lanes = [asyncio.create_task(lane()) for _ in range(effect.lanes)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for task in lanes:
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        return [results[index] for index in range(len(effect.flows))]


@dataclass(frozen=True)
class _End(Generic[T]):
    """The result of a finished flow."""

    result: T


_Waiting: TypeAlias = Request | Pause | Together[Any]
_Resume: TypeAlias = Callable[[Any], Effect]


async def _in_thread(flow: Flow[T], resume: _Resume, value: object) -> _Waiting | _End[T]:
    """Resume a flow in a thread. A cancellation waits for the thread, so that nothing writes after the member is closed."""
    cancelled = threading.Event()
    step = partial(_step_flow, flow, resume, value, cancelled)
    running = asyncio.get_running_loop().run_in_executor(None, step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancelled.set()
        while not running.done():  # a second cancellation waits too
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # seen: asyncio would log it
        raise


def _step_flow(
    flow: Flow[T], resume: _Resume, value: object, cancelled: threading.Event
) -> _Waiting | _End[T]:
    """Resume a flow up to its next wait or its end, doing its computations in this thread."""
    try:
        effect = resume(value)
        while isinstance(effect, Compute):
            if cancelled.is_set():
                raise Stopped
            try:
                outcome = effect.work()
            except Exception as error:  # noqa: BLE001 - as in `run`
                effect = flow.throw(error)
            else:
                effect = flow.send(outcome)
    except StopIteration as end:  # which no future may raise
        return _End(end.value)
    return effect


_CERTIFICATE_ASKED = re.compile("ALERT.*(CERTIFICATE|UNKNOWN_CA)")
"""OpenSSL's reasons if the server refuses our certificate."""
_PLAIN_HTTP_REASONS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}
)
"""OpenSSL's reasons if the server answers in plain text."""
_CERTIFICATE_HELP = "pass your PEM file of one, `veilsum --client-cert` or in Python cert="
_UNSENT_ERRORS = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_FAILURES = (httpx.RequestError, httpx.InvalidURL, UnicodeError)
"""httpx's errors without an answer. The last two are of an address that an answer redirects to: it is read, though not followed."""


def _client_options(url: str, verify: bool | str, cert: ClientCertificate | None) -> dict[str, Any]:  # noqa: FBT001 - as in `make_tls_context`
    return {
        "base_url": _check_url(url),
        "verify": make_tls_context(url, verify, cert),
        "headers": {"user-agent": "veilsum", "accept-encoding": "identity"},
        # None are kept: a coordinator's would pile up and return with every request.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        "trust_env": False,  # `_Way` reads it
    }


@dataclass(frozen=True)
class _Way:
    """How requests go to the coordinator.

    Attributes:
        scheme: of its address.
        proxy: address of the proxy that the environment names, which may hold a password; None without one.
        variable: that names it.
    """

    scheme: str
    proxy: str | None = None
    variable: str = ""

    @classmethod
    def of_url(cls, url: str) -> "_Way":
        """Find the way to a valid address."""
        parts, proxies = urlsplit(url), getproxies()
        names = [name for name in (parts.scheme, "all") if proxies.get(name)]
        if not names or proxy_bypass(parts.hostname or ""):
            return cls(parts.scheme)
        proxy = proxies[names[0]]
        return cls(parts.scheme, proxy if "://" in proxy else f"http://{proxy}", f"{names[0]}_proxy".upper())

    @property
    def shown_proxy(self) -> str:
        """Name the proxy, without its password."""
        parts = urlsplit(self.proxy or "")
        return f"the proxy {parts.scheme}://{parts.netloc.rpartition('@')[2]} ({self.variable})"


def name_proxy(url: str) -> str | None:
    """Name the proxy that the environment has requests to an address take, without its password; None without one."""
    way = _Way.of_url(url)
    return way.shown_proxy if way.proxy is not None else None


_Transport = TypeVar("_Transport", httpx.HTTPTransport, httpx.AsyncHTTPTransport)


def _with_proxy(make: type[_Transport], verify: ssl.SSLContext, way: _Way) -> _Transport:
    try:
        return make(verify=verify, proxy=way.proxy)
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise Misuse(  # without the address, which may hold a password
            f"{way.variable}: expected a proxy's address, such as http://proxy.example.org:3128 (socks5:// needs `pip install httpx[socks]`)"
        ) from error


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(str(url))
        usable = parts.scheme in {"https", "http"} and parts.hostname and parts.port != 0
        httpx.URL(str(url)).host.encode("idna")  # as looking it up does
    except (ValueError, httpx.InvalidURL):  # port, host or a control character
        usable = False
    if not usable:
        raise Misuse(  # without the url, which may hold a password
            "url: expected the coordinator's address with its scheme, such as https://sum.example.org:8443 (http:// only on one machine)"
        )
    if in_the_clear(url):
        warnings.warn(
            f"http://{urlsplit(url).hostname} is plain HTTP on a network: anyone on the network path can read and change requests and answers. Use https://",
            PlainHttpWarning,
            stacklevel=5,
        )
    return url


def make_tls_context(url: str, verify: bool | str, cert: ClientCertificate | None) -> ssl.SSLContext:  # noqa: FBT001 - requests' and httpx's own name and form
    """Return a context that verifies the server, unless told otherwise. Raises `Misuse` if a file can't be used."""
    if url.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused; it trusts no authority, and reads none
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except OSError as error:  # which does not name the file
        raise Misuse(f"verify: {verify} is not a readable PEM file of certificates: {error}") from error
    if verify is False:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if cert is not None:
        secret = Path(cert if isinstance(cert, str) else cert[1])
        if secret.is_file():
            refuse_loose_mode(secret, group_may=True)
        try:
            context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
        except OSError as error:
            raise Misuse(f"cert: can't use {cert}, expected PEM files: {error}") from error
    return context


def _build_request(client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    """Build the request as it is sent, signed over its wire format. Raises Misuse after `close`."""
    if client.is_closed:
        raise Misuse("closed during a conversation: make a new one, which continues where this one stopped")
    built = client.build_request(
        request.method,
        request.path,
        params=dict(request.params) or None,
        content=request.body or None,
        headers={"content-type": request.content_type} if request.body else None,
        timeout=httpx.Timeout(READ_TIMEOUT_S + request.wait_s, connect=CONNECT_TIMEOUT_S),
    )
    if request.signer is not None:
        path, _, query = built.url.raw_path.decode("ascii").partition("?")
        target = Target(request.method, built.headers["host"].lower(), path, query)
        built.headers.update(request.signer.make_headers(target, request.body, request.digest))
    return built


def _check_plain(answer: httpx.Response, request: Request) -> None:
    """Refuse encoded responses: httpx decompresses before any size check, and 252 bytes can become 62 MB."""
    encoding = answer.headers.get("content-encoding", "")
    if encoding.lower() not in {"", "identity"}:
        raise PeerFault(
            Cause.MALFORMED,
            f"{request.path}: the answer is encoded as {encoding[:40]!r}, which was not requested: turn off compression in the proxy",
            ["coordinator"],
        )


def _compute_limit_s(request: Request, received_bytes: int) -> float:
    """Return how long a request may take of whose answer so much has come, from its begin to its end."""
    patience_s = CONNECT_TIMEOUT_S + READ_TIMEOUT_S + request.wait_s
    return min(request.limit_s, patience_s + (len(request.body) + received_bytes) / BYTES_PER_S_MIN)


def _late_answer(spent_s: float) -> Unreached:
    return Unreached(f"no complete answer within {spent_s:.1f} s")


def _extend_body(body: BytesIO, piece: bytes, answer: httpx.Response, request: Request) -> bool:
    """Add a piece of an answer's body. Returns whether to read on: of a refusal, what is too long is left out."""
    refused = answer.status_code >= 400
    limit_bytes = MAX_ANSWER_BYTES if refused else request.limit_bytes
    if fits := body.tell() + len(piece) <= limit_bytes:
        body.write(piece)
    elif not refused:
        raise PeerFault(
            Cause.OVERSIZED, f"{request.path}: the answer exceeds {limit_bytes} bytes", ["coordinator"]
        )
    return fits


def _read_response(answer: httpx.Response, body: BytesIO) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Response(answer.status_code, headers, body.getvalue())  # which copies nothing


def _explain_error(error: Exception, request: Request, way: _Way) -> Unreached:
    reason = str(error)
    for cause in _list_causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise Unreachable(
                f"{request.path}: the coordinator's certificate is not trusted ({cause.verify_message}): pass your authority's "
                "PEM file, --ca or in Python verify=. If you trust the system's authorities, a network may have answered in its place"
            ) from error
        if isinstance(cause, ssl.SSLError) and cause.reason in _PLAIN_HTTP_REASONS:
            raise Unreachable(
                f"{request.path}: the server does not speak TLS at this port ({cause.reason}): begin the address with "
                "http:// if it is on this machine, or use the port that speaks TLS"
            ) from error
        if isinstance(cause, ssl.SSLError) and _CERTIFICATE_ASKED.search(cause.reason or ""):
            raise Unreachable(
                f"{request.path}: the coordinator answers only clients with a certificate of its authority ({cause.reason}): {_CERTIFICATE_HELP}"
            ) from error
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno:
            # anyio only says that all attempts failed; names that can't be found have negative numbers.
            reason = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
    reason = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    if way.proxy is not None and isinstance(error, (httpx.ProxyError, *_UNSENT_ERRORS)):
        reason = f"{way.shown_proxy} does not answer or refuses: {reason}"
    elif isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        # Servers in Python hang up on a certificate that they don't take, and send no reason.
        reason += {
            "https": f" (does it ask for certificates? then {_CERTIFICATE_HELP})",
            "http": " (does this port speak TLS? then begin the address with https://)",
        }[way.scheme]
    return Unreached(reason, sent=not isinstance(error, (*_UNSENT_ERRORS, httpx.ProxyError)))


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, outermost first."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):  # of several addresses of one name
            for each in error.exceptions:
                yield from _list_causes(each)
        error = error.__cause__ or error.__context__
