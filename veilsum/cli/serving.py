"""Serve the coordinator as `uvicorn service.app:app` does, in one process or several, and with readable errors."""

import asyncio
import gc
import resource
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.access.accepting import PooledServer
from service.access.connections import Connection
from service.access.pool import PROBE_CONNECTIONS, Pool
from service.app import create_app
from service.settings import Settings
from service.storage.faults import reword_errors
from service.storage.folder import lock_folder
from service.storage.keys import key_of
from service.storage.stores import prepare_folder
from service.telemetry import logs
from veilsum.cli.console import print_note
from veilsum.protocol.errors import Misuse
from veilsum.system.exposure import in_the_clear, refuse_loose_mode
from veilsum.system.intervals import SHUTDOWN_TIMEOUT_S
from veilsum.system.processes import keep_workers

DESCRIPTORS_BESIDE = 128
"""Files that a process opens beside its connections: the database, uploads, the bucket, the log."""


def serve_coordinator(
    host: str,
    port: int,
    data_dir: Path | None,
    certificate: Path | None,
    key: Path | None,
    client_ca: Path | None,
    processes: int,
    *,
    quiet: bool,
    started: Callable[[dict[str, Any]], None],
) -> None:
    """Serve until SIGTERM or SIGINT, and call `started` with the address when the coordinator accepts requests.

    With `client_ca`, clients need a certificate from one of that file's authorities.

    Raises:
        Misuse: the folder is in use, its key is invalid, others may read the folder or a secret, the port is taken, a certificate can't
            be read, several processes lack a shared database and bucket, the database is unreachable, libraries for tracing are
            missing, or a setting is invalid.
        OSError: the folder can't be created, or the bucket can't be read.
    """
    settings = Settings() if data_dir is None else Settings(data_dir=data_dir)
    if processes > 1 and None in {settings.database_url, settings.blobs_url}:
        raise Misuse(
            "several processes share a database and a bucket: set VEILSUM_DATABASE_URL and VEILSUM_BLOBS_URL"
        )
    _check_tls(certificate, key, client_ca)
    # The app repeats these checks at its start, but there uvicorn would show errors as tracebacks.
    with reword_errors():
        prepare_folder(settings)
        if settings.database_url is None:
            with lock_folder(settings.data_dir):
                pass
        public = key_of(settings).public
    tls = {
        "ssl_certfile": certificate,
        "ssl_keyfile": key,
        "ssl_ca_certs": str(client_ca) if client_ca else None,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE,
    }
    with _open_listener(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        facts = {
            "url": f"{'https' if certificate else 'http'}://{shown}:{listener.getsockname()[1]}",
            "public_key": public.hex(),
            "data_dir": str(settings.data_dir),
        }
        if in_the_clear(facts["url"]) and not settings.trusted_proxies:
            print_note(
                f"WARNING: {facts['url']} is plain HTTP on a network: anyone on the network path can read and change tokens, requests and results. "
                "Give --tls-cert and --tls-key, or put a proxy with TLS in front and name it in VEILSUM_TRUSTED_PROXIES"
            )
        served = serve_here if processes == 1 else serve_replica
        work, tell = partial(served, settings, listener, tls, quiet=quiet), lambda: started(facts)
        if not (work(tell) if processes == 1 else keep_workers(processes, work, tell)):
            raise Misuse("the coordinator did not start: see above")


def serve_here(
    settings: Settings, listener: socket.socket, tls: dict[str, Any], tell: Callable[[], None], *, quiet: bool
) -> bool:
    """Serve in this process, and return whether it called `tell`. Raises the Misuse or OSError that prevented the coordinator's start."""
    # stdout is for the result
    logs.configure_logs(sys.stderr, quiet=quiet)
    app = create_app(settings)
    config = uvicorn.Config(
        believe_last_hop(app) if settings.trusted_proxies == "*" else app,
        **tls,
        proxy_headers=settings.trusted_proxies not in {"", "*"},
        forwarded_allow_ips=settings.trusted_proxies,
        log_config=None,
        http=Connection,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
    )
    pool = Pool(fit_descriptors(settings.connections), find_proxies(settings.trusted_proxies))
    server = _Server(config, pool, tell)
    # uvicorn raises KeyboardInterrupt again after a clean end; newer versions raise SystemExit if they can't start.
    with (
        suppress(KeyboardInterrupt, SystemExit),
        asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
    ):
        runner.run(server.serve([listener]))
    failure: Exception | None = getattr(app.state, "failure", None)
    if isinstance(failure, Misuse | OSError):  # the log holds type and place of any other error
        raise failure
    return server.started


def believe_last_hop(app: Any) -> Any:
    """Take each request's sender from the last entry of X-Forwarded-For, which the proxy wrote; the caller wrote what stands before it."""
    believing: Any = ProxyHeadersMiddleware(app, "*")  # it takes the first

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            others = [each for each in scope["headers"] if each[0] != b"x-forwarded-for"]
            last = [(b"x-forwarded-for", lines[-1].rpartition(b",")[2].strip())] if lines else []
            scope["headers"] = [*others, *last]
        await believing(scope, receive, send)

    return answer


def serve_replica(*words: Any, **named: Any) -> None:
    """Serve in one of several processes, and report an error at its start."""
    try:
        serve_here(*words, **named)
    except (Misuse, OSError) as error:
        print_note(f"veilsum: {error}")


def fit_descriptors(connections: int) -> int:
    """Allow this process the files that so many connections need, and return how many it may have at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + PROBE_CONNECTIONS + DESCRIPTORS_BESIDE
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    fitting = max(1, soft - PROBE_CONNECTIONS - DESCRIPTORS_BESIDE)
    print_note(
        f"WARNING: this process may open {soft} files, which is room for {fitting} connections instead of {connections}: raise `ulimit -Hn` (LimitNOFILE= in "
        "a unit), or set VEILSUM_CONNECTIONS"
    )
    return fitting


def find_proxies(trusted: str) -> Callable[[str], bool]:
    """Return whether an address is of a trusted proxy."""
    if trusted == "*":
        return lambda _host: True
    networks = [ip_network(each.strip()) for each in trusted.split(",") if each.strip()]
    return lambda host: any(ip_address(host.partition("%")[0]) in network for network in networks)


class _Server(PooledServer):
    """A server that calls `tell` once it accepts connections."""

    def __init__(self, config: uvicorn.Config, pool: Pool, tell: Callable[[], None]) -> None:
        super().__init__(config, pool)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # Modules, routes and models are never freed, so the collector skips them. It looks at requests' objects a tenth as often.
            gc.collect()
            gc.freeze()
            gc.set_threshold(10_000, 20, 20)
            self._tell()


def _open_listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Misuse(
            f"can't listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from error


def _check_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> None:
    if certificate is None:
        for flag, given in (("--tls-key", key), ("--client-ca", client_ca)):
            if given is not None:
                raise Misuse(f"{flag} goes with --tls-cert")
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one; it names no file
        files = f"--tls-cert {certificate}" + (f" with --tls-key {key}" if key else "")
        raise Misuse(f"{files} can't be used: {error}") from error
    if key is not None:
        refuse_loose_mode(key, group_may=True)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise Misuse(
                f"--client-ca {client_ca} is not a readable PEM file of certificates: {error}"
            ) from error
