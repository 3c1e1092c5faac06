"""Experiment files: TOML to checked choices, and choices to a recipe.

A file may extend an installed one or one beside it, and hold variants: tables that override the base, key by key. A
choice of an algorithm, a head, a schedule, a deal or a model replaces the whole choice of the base.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from training.algorithms.base import Algorithm
from training.algorithms.named import ALGORITHMS, LOCAL_ALGORITHMS
from training.calibrating import CALIBRATIONS
from training.data.dataset import Dataset
from training.experiments.choices import (
    DEALS,
    HEADS,
    SCHEDULES,
    Choice,
    ConfigError,
    check_options,
    find_maker,
    look_up,
    make_choice,
)
from training.imports import is_import_path
from training.models.architectures import ARCHITECTURES
from training.models.config import ExtractorConfig
from training.personal import PERSONAL_METHODS
from training.recipe import LOSSES, Recipe

_NAMING_KEYS = {
    "algorithm": "name",
    "head": "name",
    "schedule": "name",
    "deal": "name",
    "model": "architecture",
}
"""Tables that name one of several things, and where. Another name has other options, so a table with a name replaces the whole one."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _drop_unwanted(methods: object) -> object:
    """Drop methods that are `false`, by which a file removes one of those it extends."""
    if not isinstance(methods, Mapping):
        return methods
    return {name: options for name, options in methods.items() if options is not False}


_DROP_UNWANTED = BeforeValidator(_drop_unwanted)


def _expand_architecture(choice: object) -> object:
    return {"architecture": choice} if isinstance(choice, str) else choice


class DataChoice(_Table):
    """Which records.

    Attributes:
        name: as in `training.data.load_dataset`: a name, or an import path.
        side: pixels to resize images to; None for the publisher's size.
        validation: the share of training records to hold out, with the classes' shares, for choosing settings.
        train_records: training records to draw, with the classes' shares; None for all.
        watched: test records in the history, to save time; final figures use all.
        pooled: add the test records to the training records, as personalised evaluation does.
        stands_in_for: the paper's data set if this is another.
        note: other differences from the paper's records.
    """

    name: str = "digits"
    side: int | None = Field(default=None, ge=4)
    validation: float = Field(default=0.0, ge=0, lt=1)
    train_records: int | None = Field(default=None, ge=1)
    watched: int | None = Field(default=None, ge=1)
    pooled: bool = False
    stands_in_for: str | None = None
    note: str = ""


class ModelChoice(_Table):
    """An architecture, by name or import path, and its options. A file may write the architecture alone, as a string."""

    architecture: str
    options: dict[str, int | str] = Field(default_factory=dict)


class TrainingChoice(_Table):
    """A `Recipe` in words: every choice except data, model and seed.

    Algorithm, head, loss and schedule may also be import paths.

    `also` are algorithms of `LOCAL_ALGORITHMS` that add their terms.
    """

    algorithm: Choice = "fedavg"
    also: tuple[Choice, ...] = ()
    head: Choice = "learned"
    loss: str = "cross-entropy"
    normalise: bool = False
    rounds: int = Field(default=100, ge=1)
    local_epochs: int = Field(default=10, ge=1)
    batch_size: int = Field(default=64, ge=1)
    lr: float = Field(default=0.1, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-5, ge=0)
    schedule: Choice = "cosine"
    augment: bool = False
    participation: float = Field(default=1.0, gt=0, le=1)
    calibrate_every: int | None = Field(default=None, ge=1)

    def whole_algorithm(self) -> Algorithm:
        """Make `algorithm` with the terms of `also`. Raises ConfigError if a choice is invalid or `also` has a server's half."""
        algorithm = _make_algorithm(self.algorithm, "training.algorithm")
        for also in self.also:
            terms = _make_algorithm(also, "training.also").terms
            name = also if isinstance(also, str) else also["name"]
            if name not in LOCAL_ALGORITHMS and not is_import_path(name):
                raise ConfigError(
                    f"training.also: {name} is what its server does, and `also` adds what members do; name it as training.algorithm, "
                    f"or add any of {', '.join(sorted(LOCAL_ALGORITHMS))}"
                )
            try:
                algorithm = algorithm.plus(*terms)
            except ValueError as error:
                raise ConfigError(f"training.also: {error}") from error
        return algorithm


def _make_algorithm(choice: Choice, where: str) -> Algorithm:
    algorithm = make_choice(ALGORITHMS, choice, where)
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"{where}: got {algorithm!r}, expected a training.algorithms.Algorithm")
    return algorithm


class PersonalChoice(_Table):
    """Evaluation on members' own records.

    Each keeps back a share of its records. Methods are of `training.personal.METHODS`, with options; false removes one of the extended
    file.
    """

    keep_back: float = Field(default=0.25, gt=0, lt=1)
    methods: Annotated[dict[str, dict[str, float | int]], _DROP_UNWANTED]


class Experiment(_Table):
    """One experiment, for any seed.

    Attributes:
        name: the file's name, and the variants' after a slash, joined by a plus.
        paper_row: the papers' row to compare with (`research/tables`).
        scale: how it is smaller than the paper's run.
        deal: the partition, one of `DEALS`.
        calibrate: heads fitted afterwards, of `training.calibrating.CALIBRATIONS`, with their options; false removes one.
        personal: evaluation of members on their own records.
    """

    name: str
    method: str
    paper_row: str | None = None
    scale: str = ""
    data: DataChoice = DataChoice()
    deal: Choice = Field(default_factory=lambda: {"name": "dirichlet", "members": 10, "alpha": 0.1})
    model: Annotated[ModelChoice, BeforeValidator(_expand_architecture)]
    training: TrainingChoice = TrainingChoice()
    calibrate: Annotated[dict[str, dict[str, Any]], _DROP_UNWANTED] = Field(default_factory=dict)
    personal: PersonalChoice | None = None

    def make_recipe(self, data: Dataset, seed: int) -> Recipe:
        """Make the recipe for these records. Raises ConfigError if a choice is invalid."""
        choice = self.training
        algorithm = choice.whole_algorithm()
        settings = choice.model_dump(exclude={"algorithm", "also", "head", "loss", "schedule"})
        try:
            recipe = Recipe(
                model=ExtractorConfig.of(self.model.architecture, data, **self.model.options),
                head=make_choice(HEADS, choice.head, "training.head"),
                loss=find_maker(LOSSES, choice.loss, "training.loss"),
                algorithm=algorithm,
                schedule=make_choice(SCHEDULES, choice.schedule, "training.schedule"),
                seed=seed,
                **settings,
            )
            algorithm.aggregation.start(recipe.build(data.classes))  # refuses unsuitable heads
            recipe.describe()  # refuses what a result can't name
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return recipe

    def check_choices(self) -> None:
        """Check choices before any data is read. Raises ConfigError, which says what is allowed."""
        model = find_maker(ARCHITECTURES, self.model.architecture, "model.architecture")
        if not is_import_path(self.model.architecture):
            check_options(model, self.model.architecture, self.model.options, "model.options")
        self.training.whole_algorithm()
        make_choice(HEADS, self.training.head, "training.head")
        make_choice(SCHEDULES, self.training.schedule, "training.schedule")
        make_choice(DEALS, self.deal, "deal")
        if self.data.pooled and self.personal is None:
            raise ConfigError(
                "data.pooled: the test records are among those trained on; it needs [personal], where members keep some back"
            )
        find_maker(LOSSES, self.training.loss, "training.loss")
        for kind, options in self.calibrate.items():
            check_options(look_up(CALIBRATIONS, kind, "calibrate"), kind, options, "calibrate")
        for method, options in self.personal.methods.items() if self.personal else ():
            check_options(
                look_up(PERSONAL_METHODS, method, "personal.methods"), method, options, "personal.methods"
            )


def list_installed() -> dict[str, tuple[str, ...]]:
    """Return the installed experiments by name, each with its variants."""
    return {name: list_variants(name) for name in sorted(_shipped_files())}


def list_variants(name: str | Path) -> tuple[str, ...]:
    """Return the variants of an experiment file, including inherited ones."""
    return tuple(_read_layers(name)[1])


def load_experiment(
    name: str | Path, variant: str | Sequence[str] | None = None, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Load an experiment.

    `name` is a path that ends in .toml, or an installed experiment's name. Later variants override earlier ones, and `changes` are tables
    that override the file.

    Raises:
        ConfigError: there is no such file or variant, or it is invalid.
    """
    table, available = _read_layers(name)
    wanted = tuple(dict.fromkeys((variant,) if isinstance(variant, str) else variant or ()))
    for each in wanted:
        if each not in available:
            raise ConfigError(f"{name} has no variant {each!r}; it has {', '.join(available) or 'none'}")
    table = merge_tables(table, _merge_variants({each: available[each] for each in wanted}), changes or {})
    if "name" in table:
        raise ConfigError(f"{name}: there is no 'name': an experiment is called as its file")
    stem = Path(name).stem
    try:
        experiment = Experiment.model_validate(
            {**table, "name": "/".join(filter(None, (stem, "+".join(wanted))))}
        )
    except ValidationError as error:
        raise ConfigError(f"{stem}: {_first_error(error)}") from error
    try:
        experiment.check_choices()
    except ConfigError as error:
        raise ConfigError(f"{experiment.name}: {error}") from error
    return experiment


def load_changed(name: str, variants: Sequence[str], settings: Sequence[str]) -> Experiment:
    """Load an experiment with settings such as `training.rounds=3`. Its `scale` names them: reports must say that this is another task."""
    changes = merge_tables(*map(parse_change, settings))
    loaded = load_experiment(name, variants, changes)
    if not settings or "scale" in changes:
        return loaded
    scale = "; ".join(filter(None, (loaded.scale, f"with {', '.join(settings)}")))
    return loaded.model_copy(update={"scale": scale})


def parse_change(text: str) -> dict[str, Any]:
    """Parse `training.rounds=3` to nested tables; the value is TOML, or else a string. Raises ConfigError without "="."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(
            f"{text!r} is not a setting; write a key, =, and a value, such as training.rounds=3"
        )
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for key in reversed(path.strip().split(".")):
        parsed = {key: parsed}
    changed: dict[str, Any] = parsed
    return changed


def merge_tables(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables; later ones override earlier ones."""
    return reduce(_merge_tables, changes, {})


def _merge_variants(wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge variants. One that names other records drops what earlier ones said about theirs, such as `stands_in_for`."""
    result: dict[str, Any] = {}
    after: list[str] = []  # variants since the last one with a scale
    for name, own in wanted.items():
        data = own.get("data")
        if isinstance(data, Mapping) and "name" in data:
            result.pop("data", None)
        result = _merge_tables(result, own)
        after = [] if "scale" in own else [*after, name]
    if after and "scale" in result:
        result["scale"] = f"{result['scale']}, except what {' and '.join(after)} may change"
    return result


def _read_layers(name: str | Path, below: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    table = _read_table(name)
    own_variants = table.pop("variants", {})
    parent = table.pop("extends", None)
    if not isinstance(own_variants, dict) or not all(
        isinstance(each, dict) for each in own_variants.values()
    ):
        raise ConfigError(f"{name}: `variants` are tables by name, such as [variants.small]")
    if not isinstance(parent, str | None):
        raise ConfigError(f"{name}: `extends` is one name of an experiment or a file, not {parent!r}")
    if parent is None:
        return table, own_variants
    if parent in below:
        raise ConfigError(f"{name} extends itself: {' → '.join((*below, parent))}")
    beside = Path(name).parent / parent if str(parent).endswith(".toml") else parent
    base, inherited = _read_layers(beside, (*below, parent))
    return _merge_tables(base, table), _merge_tables(inherited, own_variants)


def _read_table(name: str | Path) -> dict[str, Any]:
    source: Traversable = Path(name)
    if not str(name).endswith(".toml"):
        known = _shipped_files()
        if str(name) not in known:
            raise ConfigError(
                f"no experiment is called {str(name)!r}; name a .toml file, or one of {', '.join(sorted(known))}"
            )
        source = known[str(name)]
    try:
        return tomllib.loads(source.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{name} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} is not TOML: {error}") from error


def _shipped_files() -> dict[str, Traversable]:
    folder = files("training.experiments")
    found = (each for each in folder.iterdir() if each.name.endswith(".toml"))
    return {each.name.removesuffix(".toml"): each for each in found}


def _merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables. A choice that is named anew and empty `options` replace what is below."""
    result = dict(below)
    for key, value in above.items():
        mine, named = result.get(key), _NAMING_KEYS.get(key)
        if named is not None and isinstance(mine, str):
            mine = {named: mine}
        cleared = key == "options" and not value
        if isinstance(value, Mapping) and isinstance(mine, Mapping) and named not in value and not cleared:
            result[key] = _merge_tables(mine, value)
        else:
            result[key] = value
    return result


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{where}: {first['msg']}"
    tables: dict[str, type[_Table]] = {
        "data": DataChoice,
        "model": ModelChoice,
        "training": TrainingChoice,
        "personal": PersonalChoice,
    }
    table = tables.get(str(first["loc"][0]), Experiment) if len(first["loc"]) > 1 else Experiment
    fields = [field for field in table.model_fields if table is not Experiment or field != "name"]
    return f"there is no {where!r}; there are {', '.join(fields)}"
