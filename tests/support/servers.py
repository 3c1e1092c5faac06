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

    Attributes:
        options: of CREATE DATABASE.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.options = endpoint, ""
        self._made: set[str] = set()

    async def settings(self, folder: Path) -> dict[str, Any]:
        """Return the settings of a replica with this data folder; the same folder gets the same stores."""
        name = "veilsum_" + hashlib.sha256(f"{os.getpid()} {folder}".encode()).hexdigest()[:16]
        if name not in self._made:
            await execute(f"DROP DATABASE IF EXISTS {name} (FORCE)", f"CREATE DATABASE {name} {self.options}")
            self._made.add(name)
        return {
            "database_url": ADMIN_URL.rpartition("/")[0] + "/" + name,
            "blobs_url": f"s3://{BUCKET}/{name}",
            "blobs_endpoint": self.endpoint,
        }

    async def drop(self) -> None:
        for name in tuple(self._made):
            await execute(f"DROP DATABASE {name} (FORCE)")
            self._made.remove(name)


async def execute(*statements: str) -> None:
    connection = await asyncpg.connect(ADMIN_URL)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.contextmanager
def bucket_served() -> Iterator[str]:
    """Serve an empty bucket, and yield its endpoint."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            region_name=CREDENTIALS["AWS_REGION"],
        )
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield endpoint
    finally:
        server.stop()


def lacking(why: str) -> None:
    """Skip the test; fail if CI_MUST_RUN=1 forbids skipping."""
    if os.environ.get("CI_MUST_RUN") == "1":
        pytest.fail(f"{why}, and CI_MUST_RUN=1 lets nothing be skipped")
    pytest.skip(why)
