"""The same mutators and rules, guided by libFuzzer: atheris keeps inputs that reach new edges of `protocol`.

    python -m assurance.fuzz.guided (decoders | stages) RUNS SEED TALLY

An input is two bytes that select the decoder or stage, one byte that says whether a signature was made again, and the message.
The tally is written at the last run, because libFuzzer ends the process.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]  # it has no types

with atheris.instrument_imports(include=["veilsum.protocol", "veilsum.calibration"]):
    from assurance.fuzz.decoders import decoders, pool_of
    from assurance.fuzz.live import Recorder, mutated, scenario_of
    from assurance.fuzz.mutator import Mutator
    from assurance.fuzz.oracle import Stage, Tally, deliver
    from veilsum.protocol.errors import PeerFault
    from veilsum.protocol.messages import parse_message

Target = tuple[
    Callable[[int, int, bytes], None], Callable[[int, bytes, Random], tuple[bytes, bool]], list[bytes]
]
"""A target: a function that runs an input, one that mutates an input, and the seed inputs."""
HEADER_BYTES = 3
STAGES_EACH = 10


def decoders_target(seed: int, tally: Tally) -> Target:
    everything = decoders(seed)
    pool = pool_of(everything)
    corpus = [packed(place, 0, data) for place, one in enumerate(everything) for data in one.seeds]

    def run(place: int, _resigned: int, data: bytes) -> None:
        everything[place % len(everything)].feed(data, tally)

    def mutate(place: int, data: bytes, random: Random) -> tuple[bytes, bool]:
        return everything[place % len(everything)].mutant(data, Mutator(random, pool)), False

    return run, mutate, corpus


def stages_target(seed: int, tally: Tally) -> Target:
    recorder, kept = Recorder(), dict[str, list[Stage]]()
    for number in range(16):
        scenario, rounds = scenario_of(seed + number)
        recorder.run(scenario, rounds)
    for stage in recorder.stages:
        kept.setdefault(stage.name, []).append(stage)
    stages = [
        stage for alike in kept.values() for stage in Random(seed).sample(alike, min(STAGES_EACH, len(alike)))
    ]
    corpus = [packed(place, 0, stage.message.to_bytes()) for place, stage in enumerate(stages)]

    def run(place: int, resigned: int, data: bytes) -> None:
        deliver(stages[place % len(stages)], data, tally, resigned=bool(resigned))

    def mutate(place: int, data: bytes, random: Random) -> tuple[bytes, bool]:
        stage, mutator = stages[place % len(stages)], Mutator(random, recorder.pool)
        try:
            message = parse_message(data)
        except PeerFault:
            message = stage.message
        return mutated(stage, message, mutator)

    return run, mutate, corpus


def packed(place: int, resigned: int, data: bytes) -> bytes:
    return place.to_bytes(2, "little") + bytes((resigned,)) + data


def main(which: str, runs: int, seed: int, output: Path) -> None:
    tally, done = Tally(), 0
    make = {"decoders": decoders_target, "stages": stages_target}[which]
    run, mutate, corpus = make(seed, tally)

    def one_input(data: bytes) -> None:
        nonlocal done
        done += 1
        if len(data) >= HEADER_BYTES:
            run(int.from_bytes(data[:2], "little"), data[2], data[HEADER_BYTES:])
        if done == runs:
            output.write_text(tally.to_json())

    def mutator(data: bytes, max_size: int, mutation_seed: int) -> bytes:
        random = Random(mutation_seed)
        place, payload = int.from_bytes(data[:2], "little"), data[HEADER_BYTES:]
        changed, resigned = mutate(place, payload, random)
        mutant = packed(place, resigned, changed)
        return mutant if len(mutant) <= max_size else data

    with tempfile.TemporaryDirectory() as folder:
        for place, data in enumerate(corpus):
            (Path(folder) / f"{place:05}").write_bytes(data)
        flags = [f"-runs={runs}", f"-seed={seed + 1}", f"-artifact_prefix={folder}/"]
        flags += ["-max_len=65536", "-rss_limit_mb=0", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *flags, folder], one_input, custom_mutator=mutator)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
