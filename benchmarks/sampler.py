"""The discrete Gaussian sampler compared with its limits: the bytes of AES-256-CTR that it must draw, and OpenDP's sampler.

Each figure is the CPU time of one core per sample, the best of several alternating blocks. The vector is
that of the papers' main table, l = 1280 and C = 100, unless stated otherwise. OpenDP runs in an interpreter of its own, if one
with OpenDP is given:

    .venv/bin/python -m benchmarks.sampler --opendp PYTHON --output runs/sampler.json
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from rich.console import Console
from rich.table import Table

from benchmarks.secure_sum import ROOT
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.release import ffc_release
from veilsum.calibration.privacy.sampler import DRAW_BYTES, ByteSource, DiscreteGaussian

SIGMA_BITS = (2, 12, 20, 30)
SAMPLES = 2_000_000
CHUNK = 1 << 16
BLOCK = 1 << 17

OPENDP = """
import json, sys, time
import opendp.prelude as dp
dp.enable_features("contrib")
count, sigma = int(sys.argv[1]), float(sys.argv[2])
space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
noise = dp.m.make_gaussian(*space, scale=sigma)
values = [0] * count
noise(values)
started = time.process_time()
noise(values)
print(json.dumps({"ns": (time.process_time() - started) / count * 1e9}))
"""


def cpu_ns(work: Callable[[], Any], blocks: int) -> float:
    """Return the nanoseconds of the fastest call."""
    best = float("inf")
    for _ in range(blocks):
        started = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - started)
    return best


def aes() -> ByteSource:
    """Return an AES-256-CTR source with a new key; each call overwrites the previous bytes."""
    stream, zeros = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor(), memoryview(bytes(BLOCK))
    buffer = memoryview(bytearray(BLOCK + 15))

    def draw(count_bytes: int) -> memoryview:
        stream.update_into(zeros[:count_bytes], buffer)
        return buffer[:count_bytes]

    return draw


def measure(sigma_bits: int, blocks: int) -> dict[str, float]:
    asked = [0]
    stream = aes()

    def source(count_bytes: int) -> bytes | memoryview:
        asked[0] += count_bytes
        return stream(count_bytes)

    gaussian = DiscreteGaussian(1 << 2 * sigma_bits, source)
    chunk = np.empty(CHUNK, np.int64)

    def samples() -> None:
        for _ in range(SAMPLES // CHUNK):
            gaussian.fill_samples(chunk)

    count = SAMPLES // CHUNK * CHUNK
    samples()
    asked[0] = 0
    sampler = cpu_ns(samples, blocks) / count
    drawn = asked[0] / blocks / count

    def keystream() -> None:
        for _ in range(round(drawn * count / DRAW_BYTES)):
            stream(DRAW_BYTES)

    limit = cpu_ns(keystream, blocks) / count
    return {
        "sigma_bits": sigma_bits,
        "ns_a_sample": sampler,
        "million_samples_s": 1e3 / sampler,
        "bytes_a_sample": drawn,
        "keystream_ns_a_sample": limit,
        "over_keystream": sampler / limit,
    }


def upload(blocks: int) -> dict[str, float]:
    """Measure noise on a whole upload, and its memory."""
    release = ffc_release(1280, 100)
    mechanism = Mechanism(release, 1, gdp_mu(1.0, 1e-5), members=50, survivors_min=32, colluders=12)
    vector = np.zeros(release.layout.elements, np.int64)

    def noise() -> None:
        mechanism.add_noise(vector, aes())

    taken = cpu_ns(noise, blocks)
    tracemalloc.start()
    noise()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"elements": release.layout.elements, "cpu_ms": taken / 1e6, "peak_mb": peak / 1e6}


def opendp(python: Path, sigma_bits: int, blocks: int) -> float:
    """Measure OpenDP's CPU nanoseconds per sample, in the fastest block."""
    command = [str(python), "-c", OPENDP, "100000", str(2.0**sigma_bits)]
    runs = (
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        for _ in range(blocks)
    )
    return min(float(json.loads(done.stdout)["ns"]) for done in runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/sampler.json")
    parser.add_argument("--opendp", type=Path, help="a Python that has opendp")
    parser.add_argument("--blocks", type=int, default=5)
    given = parser.parse_args()
    figures = [measure(bits, given.blocks) for bits in SIGMA_BITS]
    if given.opendp:
        for figure in figures:
            figure["opendp_ns_a_sample"] = opendp(given.opendp, int(figure["sigma_bits"]), given.blocks)
            figure["opendp_over_ours"] = figure["opendp_ns_a_sample"] / figure["ns_a_sample"]
    whole = upload(given.blocks)
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(title="discrete Gaussian, one core", title_justify="left")
    for column in figures[0]:
        table.add_column(column.replace("_", " "))
    for figure in figures:
        table.add_row(*(f"{value:.4g}" for value in figure.values()))
    console.print(table)
    console.print(
        f"noise on {whole['elements']:,} elements: {whole['cpu_ms']:.0f} ms within {whole['peak_mb']:.1f} MB"
    )
    given.output.parent.mkdir(parents=True, exist_ok=True)
    written = {"machine": platform.platform(), "sampler": figures, "upload": whole}
    given.output.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    console.print(f"written to {given.output}")


if __name__ == "__main__":
    main()
