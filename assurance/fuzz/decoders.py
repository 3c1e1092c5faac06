"""All decoders of bytes from peers or disk, each with seed inputs and the exceptions that it may raise."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import ValidationError

from assurance.fuzz.chunks import packed_seeds, read_packed
from assurance.fuzz.live import Recorder, forms, scenario_of
from assurance.fuzz.mutator import Mutator, Pool, encode, parts, sample
from assurance.fuzz.oracle import Tally, phase_of
from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol import rest
from veilsum.protocol.codec import Headed, Struct
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.member import MemberPhase, load_phase
from veilsum.protocol.messages.base import Message, parse_message
from veilsum.protocol.packing import PackingError
from veilsum.protocol.record import ResultRecord, record_digest
from veilsum.protocol.study import Content

SEEDS_EACH = 24
STRINGS = ("", "0" * 16, "0" * 64, "0" * 128, str(1 << 63), "member-0", "none", "\u0000", "é", "\ud800")
NUMBERS = (0, 1, -1, 8, 1 << 22, 1 << 48, 1 << 64, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"))
VALUES: tuple[Any, ...] = (*STRINGS, *NUMBERS, None, True, False, [], {}, [[[]]], {"a": 1}, ["member-0"])


@dataclass(frozen=True)
class Decoder:
    """A decoder to fuzz.

    Attributes:
        name: of the format.
        form: the struct, if it is one of ours.
        read: decodes; raises AssertionError if the value would be written differently.
        refusals: the exceptions by which it refuses bad bytes.
        seeds: valid inputs.
    """

    name: str
    form: type[Headed] | None
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def mutant(self, data: bytes, mutator: Mutator) -> bytes:
        """Mutate by fields if the bytes decode, half of the JSON by its tree, and the rest by bytes."""
        if self.form is not None:
            try:
                return mutator.message(self.form.from_bytes(data))[1]
            except PeerFault:
                return mutator.bytes(data)
        if mutator.random.random() < 0.6:
            with suppress(ValueError, RecursionError):
                return _dumped(_mutated_json(json.loads(data), mutator.random))
        return mutator.bytes(data)

    def feed(self, data: bytes, tally: Tally) -> None:
        """Decode once, under the oracle's rules."""
        tally.messages[self.name] += 1
        if tally.call(self.name, data, lambda: (self.read(data),), self.refusals) is not None:
            tally.causes["accepted"] += 1


def decoders(seed: int = 0) -> tuple[Decoder, ...]:
    """Return all decoders, with seeds from simulated rounds. Types that no round contains are drawn field by field."""
    recorder = Recorder()
    for number in range(6):
        scenario, rounds = scenario_of(seed + number)
        recorder.run(scenario, rounds)
    mutator = Mutator(Random(seed), recorder.pool)
    seen: dict[type[Headed], dict[bytes, None]] = {}
    for stage in recorder.stages:
        for value in (stage.message, stage.phase, phase_of(stage.after)):
            for part in parts(value) if isinstance(value, Struct) else ():
                if isinstance(part, Headed):
                    seen.setdefault(type(part), {})[part.to_bytes()] = None
    found = [_of_form(form, _seeds(form, seen, mutator)) for form in _headed()]
    found.append(Decoder("chunk", None, read_packed, (PackingError,), packed_seeds()))
    found.append(Decoder("study content", None, _read_content, (PeerFault,), _contents()))
    for model in _models():
        seeds = tuple({_dumped(_instance(model.model_json_schema(), Random(i))): None for i in range(8)})
        found.append(Decoder(f"JSON {model.__name__}", None, _model_reader(model), (ValidationError,), seeds))
    return tuple(found)


def _of_form(form: type[Headed], seeds: tuple[bytes, ...]) -> Decoder:
    """Make the decoder of a message, a stored phase or another struct."""
    if form in MemberPhase.forms.values():
        refusals = (PeerFault, Misuse)  # Misuse: not a phase's kind
        return Decoder(f"stored {form.__name__}", form, _read_phase, refusals, seeds)
    read = _message_reader(form) if form in Message.forms.values() else _reader(form)
    return Decoder(form.__name__, form, read, (PeerFault,), seeds)


def _seeds(
    form: type[Headed], seen: dict[type[Headed], dict[bytes, None]], mutator: Mutator
) -> tuple[bytes, ...]:
    if form in seen:
        return tuple(seen[form])[:SEEDS_EACH]
    drawn = [sample(form, mutator) for _ in range(4)]
    return tuple(value.to_bytes() for value in drawn if value) or (bytes((form.version, form.kind)),)


def _headed() -> list[type[Headed]]:
    """Return every standalone type: messages, stored phases, and others with a version and a kind."""
    return [form for form in forms() if issubclass(form, Headed) and hasattr(form, "kind")]


def _reader(form: type[Headed]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        value = form.from_bytes(data)
        assert value.to_bytes() == data == encode(value), "decodes, but is encoded otherwise"
        return value

    return read


def _message_reader(form: type[Headed]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        alone = None
        try:
            alone = form.from_bytes(data)
        except PeerFault as fault:
            # a reader that doesn't know the kind beforehand refuses the same bytes
            try:
                other = parse_message(data)
            except PeerFault:
                raise fault from None
            assert type(other) is not form, "parse takes what from_bytes refuses"
            return other
        assert parse_message(data) == alone, "parse and from_bytes differ"
        assert alone.to_bytes() == data == encode(alone), "decodes, but is encoded otherwise"
        repr(alone)
        return alone

    return read


def _read_phase(data: bytes) -> object:
    phase = load_phase(data)
    assert phase.to_bytes() == data == encode(phase), "decodes, but is encoded otherwise"
    return phase


def _read_content(data: bytes) -> object:
    content = Content.from_bytes(data)
    assert content.to_bytes() == data, "decodes, but is encoded otherwise"
    assert content.question.elements_of(content.question.steps[-1]) > 0
    assert content.question.smallest.quorum.survivors_min <= content.question.members_min
    return content


def _contents() -> tuple[bytes, ...]:
    """Return studies of every kind."""
    noise = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}
    features = {"kind": "random-features", "size": 8, "bandwidth": 1.5}
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"constant": True, "statistics": [{"kind": "ffc"}, features]},
        {"statistics": [{"kind": "ccvr"}], "members_min": 8},
        {"noise": noise, "ring_bits": 48},
    )
    questions = [{**simulated_question(8, margin=margin), **more} for margin in (None, 1) for more in changes]
    legal = [
        each
        for each in questions
        if not (each["noise"] and each["withhold"])
        and (each["withhold"] or each["statistics"] != [{"kind": "ccvr"}])
    ]
    return tuple(simulated_content(each, 2_000_000_000).to_bytes() for each in legal)


def _models() -> list[type[rest.Model]]:
    forms = [form for form in vars(rest).values() if isinstance(form, type) and issubclass(form, rest.Model)]
    return [form for form in forms if form is not rest.Model]


def _model_reader(model: type[rest.Model]) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        value = model.model_validate_json(data)
        assert model.model_validate_json(value.model_dump_json()) == value, (
            "is read otherwise than it was written"
        )
        if isinstance(value, ResultRecord):
            assert len(record_digest(value)) == 32
        return value

    return read


def _dumped(value: object) -> bytes:
    """Dump compactly with sorted keys, as studies require; JSON models accept any order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _mutated_json(value: Any, random: Random) -> Any:
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        match random.randrange(6):
            case 0:
                return {name: held for name, held in value.items() if name != key}
            case 1:
                return {**value, random.choice(("extra", "é", key + "_")): random.choice(VALUES)}
            case _:
                return {**value, key: _mutated_json(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        return [*value[:place], _mutated_json(value[place], random), *value[place + random.randrange(2) :]]
    if isinstance(value, int) and random.random() < 0.5:
        return value + random.choice((-1, 1))
    return random.choice(VALUES)


def _instance(schema: dict[str, Any], random: Random, root: dict[str, Any] | None = None) -> Any:
    """Return a value that a JSON schema allows, or nearly."""
    root = root or schema
    if "$ref" in schema:
        return _instance(root["$defs"][schema["$ref"].split("/")[-1]], random, root)
    for choices in ("anyOf", "enum", "const"):
        if choices in schema:
            held = schema[choices]
            chosen = held if choices == "const" else random.choice(held)
            return _instance(chosen, random, root) if choices == "anyOf" else chosen
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: _instance(one, random, root) for name, one in schema["properties"].items()}
        case "object":
            return {"collecting": _instance(schema["additionalProperties"], random, root)}
        case "array":
            items = schema.get("prefixItems") or [schema["items"]] * random.randrange(3)
            return [_instance(one, random, root) for one in items]
        case "string":
            return next(
                s
                for s in STRINGS[::-1]
                if re.search(schema.get("pattern", ""), s) and s.isascii() and len(s) > 1
            )
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return random.random() < 0.5
    return None


def pool_of(everything: tuple[Decoder, ...]) -> Pool:
    """Collect the values of all seeds."""
    pool = Pool()
    for decoder in everything:
        if decoder.form is not None:
            for data in decoder.seeds:
                with suppress(PeerFault):
                    pool.add(decoder.form.from_bytes(data))
    return pool


def campaign(seed: int, inputs: int) -> Tally:
    """Mutate the seeds of each type in turn; a third of the mutants are mutated again."""
    tally, random, everything = Tally(), Random(seed), decoders(seed)
    mutator = Mutator(random, pool_of(everything))
    for number in range(inputs):
        decoder = everything[number % len(everything)]
        data = decoder.mutant(random.choice(decoder.seeds), mutator)
        if random.random() < 0.33:
            data = decoder.mutant(data, mutator)
        decoder.feed(data, tally)
    return tally
