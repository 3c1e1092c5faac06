"""PostgreSQL and an S3 bucket, on which the tests can run instead of SQLite and files."""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import boto3
import pytest
from moto.server import ThreadedMotoServer

ADMIN_URL = os.environ.get("TEST_POSTGRES_URL", "postgresql://postgres@127.0.0.1:5432/postgres")
BUCKET = "veilsum-tests"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


class Servers:
    """Give each data folder a database and a prefix of the bucket.

    No commit waits for the disk: no test cuts the power of PostgreSQL's machine.

    Args:
        endpoint: the bucket's.
        emptied: databases to use before others are created. `empty` adds to them: to drop a database makes PostgreSQL write all that it has.

    Attributes:
        options: of CREATE DATABASE.
    """

    def __init__(self, endpoint: str, emptied: list[str] | None = None) -> None:
        self.endpoint, self.options = endpoint, ""
        self._emptied = [] if emptied is None else emptied
        self._names: dict[str, str] = {}

    async def settings(self, folder: Path) -> dict[str, Any]:
        """Return the settings of a replica with this data folder; the same folder gets the same stores."""
        prefix = _prefix_of(folder)
        if prefix not in self._names:
            reused = self._emptied.pop() if self._emptied and not self.options else None
            self._names[prefix] = reused or await self._create(prefix)
        return {
            "database_url": _url_of(self._names[prefix]),
            "blobs_url": f"s3://{BUCKET}/{prefix}",
            "blobs_endpoint": self.endpoint,
        }

    async def copy(self, folder: Path, into: Path) -> None:
        """Give a data folder copies of the stores of another one, whose coordinator is stopped."""
        source, target = _prefix_of(folder), _prefix_of(into)
        self._names[target] = await self._create(target, f"TEMPLATE {self._names[source]}")
        with bucket_client(self.endpoint) as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{source}/")
            for page in pages:
                for key in (each["Key"] for each in page.get("Contents", ())):
                    copied = target + key.removeprefix(source)
                    client.copy_object(Bucket=BUCKET, Key=copied, CopySource={"Bucket": BUCKET, "Key": key})

    async def _create(self, name: str, options: str = "") -> str:
        await execute(
            f"DROP DATABASE IF EXISTS {name} (FORCE)",
            f"CREATE DATABASE {name} {options or self.options}",
            f"ALTER DATABASE {name} SET synchronous_commit = off",
        )
        return name

    async def empty(self) -> None:
        """Empty the databases, for others to use."""
        if self.options:
            await self.drop()
        for name in self._names.values():
            await execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
                "DROP SCHEMA public CASCADE",
                "CREATE SCHEMA public",
                database=name,
            )
            self._emptied.append(name)
        self._names.clear()

    async def drop(self) -> None:
        """Drop the databases, and those that were emptied."""
        names = [*self._names.values(), *self._emptied]
        await execute(*(f"DROP DATABASE {name} (FORCE)" for name in names))
        self._names.clear()
        self._emptied.clear()


def _prefix_of(folder: Path) -> str:
    return "veilsum_" + hashlib.sha256(f"{os.getpid()} {folder}".encode()).hexdigest()[:16]


def _url_of(database: str) -> str:
    return ADMIN_URL.rpartition("/")[0] + "/" + database


async def execute(*statements: str, database: str | None = None) -> None:
    connection = await asyncpg.connect(ADMIN_URL if database is None else _url_of(database))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.contextmanager
def bucket_client(endpoint: str) -> Iterator[Any]:
    """Yield a client of the buckets there."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_REGION"],
    )
    with contextlib.closing(client):
        yield client


@contextlib.contextmanager
def bucket_served() -> Iterator[str]:
    """Serve an empty bucket, and yield its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with bucket_client(endpoint) as client:
            client.create_bucket(Bucket=BUCKET)
        yield endpoint
    finally:
        server.stop()


def lacking(why: str) -> None:
    """Skip the test; fail if CI_MUST_RUN=1 forbids skipping."""
    if os.environ.get("CI_MUST_RUN") == "1":
        pytest.fail(f"{why}, and CI_MUST_RUN=1 lets nothing be skipped")
    pytest.skip(why)
