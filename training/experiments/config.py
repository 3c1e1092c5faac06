"""An experiment's file: TOML to choices that were checked, and choices to a recipe.

A file may extend another one, shipped or beside it, and hold variants: tables laid over what they start from, key by key. A
choice of an algorithm, a head, a schedule, a deal or a model takes the whole place of the one below it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from training.algorithms import ALGORITHMS, LOCAL, Algorithm
from training.calibrating import CALIBRATIONS
from training.data import Dataset
from training.experiments.choices import HEADS, SCHEDULES, Choice, check_later, chosen, maker
from training.experiments.dealing import DEALS
from training.experiments.errors import ConfigError
from training.losses import LOSSES
from training.models import ARCHITECTURES, ExtractorConfig
from training.personal import METHODS
from training.recipe import Recipe

# Tables for one of several things: another choice has other options, so it takes the whole place.
_CHOICES = frozenset({"algorithm", "head", "schedule", "deal", "model"})


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _wanted(methods: object) -> object:
    """A table of methods without those that are `false`: what a file lays over another can so take one away."""
    if not isinstance(methods, Mapping):
        return methods
    return {name: options for name, options in methods.items() if options is not False}


_WANTED = BeforeValidator(_wanted)


class DataChoice(_Table):
    """Which records.

    Attributes:
        name: as `training.data.load_dataset` knows it.
        side: pixels that images are brought to; None for the publisher's.
        train_records: so many of the training records, with the classes' shares; all where None.
        watched: so many of the test records are what the history follows, to save time; final figures are over all of them.
        pooled: put the test records among the training ones, as personalised evaluation does.
        checked: hold files against their checksums; false for a pack of one's own.
        stands_in_for: the paper's data set where this is another.
        note: what else differs from the paper's records.
    """

    name: str = "digits"
    side: int | None = Field(default=None, ge=4)
    train_records: int | None = Field(default=None, ge=1)
    watched: int | None = Field(default=None, ge=1)
    pooled: bool = False
    checked: bool = True
    stands_in_for: str | None = None
    note: str = ""


class ModelChoice(_Table):
    """An architecture and its own options."""

    architecture: str
    options: dict[str, int | str] = Field(default_factory=dict)


class TrainingChoice(_Table):
    """A `Recipe` in words: every choice but data, model and seed.

    Attributes:
        algorithm: one of `ALGORITHMS`.
        also: further algorithms, of `LOCAL`, of which the terms are added.
        head: one of `HEADS`.
        loss: one of `LOSSES`.
        schedule: one of `SCHEDULES`.
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
        """`algorithm` with the terms of `also`.

        Raises:
            ConfigError: a choice that is none, or a further one that its terms alone are not.
        """
        algorithm = chosen(ALGORITHMS, self.algorithm, "training.algorithm")
        for also in self.also:
            terms = chosen(ALGORITHMS, also, "training.also").terms
            name = also if isinstance(also, str) else also["name"]
            if name not in LOCAL:
                raise ConfigError(
                    f"training.also: {name} is what its server does, and `also` adds what members do; name it as training.algorithm, "
                    f"or add any of {', '.join(sorted(LOCAL))}"
                )
            try:
                algorithm = algorithm.plus(*terms)
            except ValueError as error:
                raise ConfigError(f"training.also: {error}") from error
        return algorithm


class PersonalChoice(_Table):
    """Evaluation on members' own records.

    Attributes:
        keep_back: the share that each keeps back.
        methods: of `training.personal.METHODS`, with options; false leaves out one of what is extended.
    """

    keep_back: float = Field(default=0.25, gt=0, lt=1)
    methods: Annotated[dict[str, dict[str, float | int]], _WANTED]


class Experiment(_Table):
    """One experiment, whatever its seed.

    Attributes:
        name: the file's, and the variant's after a slash; of several, a plus between them.
        method: how tables call it.
        paper_row: the papers' row that it is held against, as `python -m training.report` names them.
        scale: in what it is smaller than the paper's run.
        data: the records.
        deal: who holds what, one of `training.experiments.dealing.DEALS`.
        model: the extractor.
        training: everything else about the training.
        calibrate: heads fitted afterwards, of `training.calibrating.CALIBRATIONS`, with their options; false leaves one out.
        personal: whether and how members are evaluated on their own records.
    """

    name: str
    method: str
    paper_row: str | None = None
    scale: str = ""
    data: DataChoice = DataChoice()
    deal: Choice = Field(default_factory=lambda: {"name": "dirichlet", "members": 10, "alpha": 0.1})
    model: ModelChoice
    training: TrainingChoice = TrainingChoice()
    calibrate: Annotated[dict[str, dict[str, Any]], _WANTED] = Field(default_factory=dict)
    personal: PersonalChoice | None = None

    def recipe(self, data: Dataset, seed: int) -> Recipe:
        """What trains on these records.

        Raises:
            ConfigError: a choice that is none.
        """
        choice = self.training
        algorithm = choice.whole_algorithm()
        settings = choice.model_dump(exclude={"algorithm", "also", "head", "loss", "schedule"})
        try:
            recipe = Recipe(
                model=ExtractorConfig.of(self.model.architecture, data, **self.model.options),
                head=chosen(HEADS, choice.head, "training.head"),
                loss=maker(LOSSES, choice.loss, "training.loss"),
                algorithm=algorithm,
                schedule=chosen(SCHEDULES, choice.schedule, "training.schedule"),
                seed=seed,
                **settings,
            )
            algorithm.aggregation.start(recipe.build(data.classes))  # refuses heads that it can't do with
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return recipe

    def check(self) -> None:
        """Find a wrong choice before any data is read.

        Raises:
            ConfigError: what is wrong, and what would be allowed.
        """
        maker(ARCHITECTURES, self.model.architecture, "model.architecture")
        self.training.whole_algorithm()
        chosen(HEADS, self.training.head, "training.head")
        chosen(SCHEDULES, self.training.schedule, "training.schedule")
        chosen(DEALS, self.deal, "deal")
        if self.data.pooled and self.personal is None:
            raise ConfigError(
                "data.pooled: the test records are among those trained on; it needs [personal], where members keep some back"
            )
        maker(LOSSES, self.training.loss, "training.loss")
        for kind, options in self.calibrate.items():
            check_later(CALIBRATIONS, kind, options, "calibrate")
        for method, options in self.personal.methods.items() if self.personal else ():
            check_later(METHODS, method, options, "personal.methods")


def shipped() -> dict[str, tuple[str, ...]]:
    """The experiments that come with the package, by name, each with its variants."""
    return {name: variants(name) for name in sorted(_shipped_files())}


def variants(name: str | Path) -> tuple[str, ...]:
    """What an experiment's file calls its variants, those that it extends included."""
    return tuple(_layers(name)[1])


def load_experiment(
    name: str | Path, variant: str | Sequence[str] | None = None, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """An experiment from a file, or from those that come with the package.

    Args:
        name: a shipped experiment's name, or a path that ends in .toml.
        variant: one of the file's, or several, each laid over those before it; the paper's own settings where None.
        changes: further tables laid over it.

    Raises:
        ConfigError: there is no such file or variant, it is no TOML, or it holds a choice that is none.
    """
    table, available = _layers(name)
    wanted = tuple(dict.fromkeys((variant,) if isinstance(variant, str) else variant or ()))
    for each in wanted:
        if each not in available:
            raise ConfigError(f"{name} has no variant {each!r}; it has {', '.join(available) or 'none'}")
    table = merged(table, _together({each: available[each] for each in wanted}), changes or {})
    stem = Path(name).stem
    try:
        experiment = Experiment.model_validate(
            {**table, "name": "/".join(filter(None, (stem, "+".join(wanted))))}
        )
    except ValidationError as error:
        raise ConfigError(f"{stem}: {_first(error)}") from error
    try:
        experiment.check()
    except ConfigError as error:
        raise ConfigError(f"{experiment.name}: {error}") from error
    return experiment


def parse_change(text: str) -> dict[str, Any]:
    """`training.rounds=3` as the table that it stands for; the value is TOML, or else a string.

    Raises:
        ConfigError: it has no equals sign.
    """
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{text!r} is no change; write a key, =, and a value, such as training.rounds=3")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for key in reversed(path.strip().split(".")):
        parsed = {key: parsed}
    changed: dict[str, Any] = parsed
    return changed


def merged(*changes: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over one another, the last on top."""
    result: dict[str, Any] = {}
    for change in changes:
        result = _over(result, change)
    return result


def _together(wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Variants laid over one another. Other records have nothing of those that an earlier one named, such as what they stand in for."""
    result: dict[str, Any] = {}
    after: list[str] = []  # those since the last one that says in what it is smaller
    for name, own in wanted.items():
        data = own.get("data")
        if isinstance(data, Mapping) and "name" in data:
            result.pop("data", None)
        result = _over(result, own)
        after = [] if "scale" in own else [*after, name]
    if after and "scale" in result:
        result["scale"] += f", but for what {' and '.join(after)} may change"
    return result


def _layers(name: str | Path, below: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    table = _read(name)
    own_variants = table.pop("variants", {})
    parent = table.pop("extends", None)
    if parent is None:
        return table, own_variants
    if parent in below:
        raise ConfigError(f"{name} extends itself: {' → '.join((*below, parent))}")
    beside = Path(name).parent / parent if str(parent).endswith(".toml") else parent
    base, inherited = _layers(beside, (*below, parent))
    return _over(base, table), _over(inherited, own_variants)


def _read(name: str | Path) -> dict[str, Any]:
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
        raise ConfigError(f"{name} is no TOML: {error}") from error


def _shipped_files() -> dict[str, Traversable]:
    folder = files("training.experiments")
    found = (each for each in folder.iterdir() if each.name.endswith(".toml"))
    return {each.name.removesuffix(".toml"): each for each in found}


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        mine = result.get(key)
        if isinstance(value, Mapping) and isinstance(mine, Mapping) and key not in _CHOICES:
            result[key] = _over(mine, value)
        else:
            result[key] = value
    return result


def _first(error: ValidationError) -> str:
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
