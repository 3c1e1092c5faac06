"""A choice in an experiment file, `"fedprox"` or `{ name = "fedprox", mu = 0.01 }`, and what it can name."""

import json
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from training.data.dataset import Dataset
from training.heads import (
    LearnedHead,
    NormalisedHead,
    Orthonormal,
    Simplex,
    Tammes,
    orthonormal_head,
    random_head,
    unbiased_head,
    uniform_head,
)
from training.imports import import_object, is_import_path
from training.partition import (
    Partition,
    dirichlet_partition,
    iid_partition,
    natural_partition,
    quantity_partition,
    shard_partition,
)
from training.recipe import Constant, Cosine, HeadFactory, MultiStep, Schedule

T = TypeVar("T")
Choice = str | dict[str, Any]
Deal = Callable[[Dataset, np.random.Generator], Partition]


class ConfigError(ValueError):
    """An invalid choice; the message names the valid ones."""


def _learned_head(*, bias: bool = True) -> HeadFactory:
    return LearnedHead if bias else unbiased_head


def _orthonormal_head(*, scale: float = 1.0) -> HeadFactory:
    return orthonormal_head if scale == 1 else Orthonormal(scale)


HEADS: dict[str, Callable[..., HeadFactory]] = {
    "learned": _learned_head,
    "normalised": lambda: NormalisedHead,
    "random": lambda: random_head,
    "uniform": lambda: uniform_head,
    "orthonormal": _orthonormal_head,
    "simplex": Simplex,
    "tammes": Tammes,
}
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "cosine": Cosine,
    "multi-step": MultiStep,
}


def _dirichlet_deal(*, members: int, alpha: float, min_size: int = 10) -> Deal:
    return lambda data, rng: dirichlet_partition(data.y.numpy(), members, alpha, rng, min_size=min_size)


def _iid_deal(*, members: int) -> Deal:
    return lambda data, rng: iid_partition(data.y.numpy(), members, rng)


def _shard_deal(*, members: int, classes: int) -> Deal:
    return lambda data, rng: shard_partition(data.y.numpy(), members, classes, rng)


def _quantity_deal(*, members: int, beta: float, min_size: int = 10) -> Deal:
    return lambda data, rng: quantity_partition(data.y.numpy(), members, beta, rng, min_size=min_size)


def _natural_deal(*, min_size: int = 10, members: int | None = None) -> Deal:
    """Deal to the writers, speakers or domains that the records came from, or to `members` of them, drawn at random."""

    def deal(data: Dataset, rng: np.random.Generator) -> Partition:
        groups = None if data.groups is None else data.groups.numpy()
        whole = natural_partition(data.y.numpy(), groups, min_size=min_size)
        if members is None:
            return whole
        if members > len(whole):
            raise ValueError(f"there are {len(whole)} natural members, not {members}")
        drawn = np.sort(rng.choice(len(whole), members, replace=False))
        return Partition.of([whole.members[k] for k in drawn], data.y.numpy())

    return deal


DEALS: dict[str, Callable[..., Deal]] = {
    "dirichlet": _dirichlet_deal,
    "iid": _iid_deal,
    "natural": _natural_deal,
    "quantity": _quantity_deal,
    "shards": _shard_deal,
}


def make_choice(registry: Mapping[str, Callable[..., T]], choice: Choice, where: str) -> T:
    """Make what a choice names."""
    options = {} if isinstance(choice, str) else dict(choice)
    name = choice if isinstance(choice, str) else options.pop("name", None)
    make = find_maker(registry, name, where)
    values = check_options(make, str(name), options, where)
    try:
        return make(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {name}'s {error}") from error


def find_maker(registry: Mapping[str, T], name: object, where: str) -> T:
    """Look up a name, or import what an import path names. Raises ConfigError if there is no such thing, or it can't be called."""
    if not is_import_path(name):
        return look_up(registry, name, where)
    try:
        made: T = import_object(str(name))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    if not callable(made):
        raise ConfigError(f"{where}: {name} is {made!r}, expected a function or a class")
    return made


def look_up(registry: Mapping[str, T], name: object, where: str) -> T:
    """Look up a name. Raises ConfigError if the registry does not have it."""
    if not isinstance(name, str) or name not in registry:
        told = "a table needs a `name`" if name is None else f"there is no {name!r}"
        raise ConfigError(f"{where}: {told}; it is one of {', '.join(sorted(registry))}")
    return registry[name]


def check_options(
    make: Callable[..., Any], name: str, options: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Check options against a maker's signature and return their values; text is not converted to numbers.

    Raises:
        ConfigError: the first option that is unknown, missing or of another type.
    """
    takes = {
        each.name: each
        for each in signature(make).parameters.values()
        if each.kind is Parameter.KEYWORD_ONLY or each.default is not Parameter.empty
    }
    if unknown := sorted(set(options) - set(takes)):
        has = f"its options are {', '.join(takes)}" if takes else "it has none"
        raise ConfigError(f"{where}: {name} has no option {unknown[0]!r}; {has}")
    for option, parameter in takes.items():
        if parameter.default is Parameter.empty and option not in options:
            raise ConfigError(f"{where}: {name} needs the option {option!r}")
    if not options:
        return {}
    written = SimpleNamespace(__annotations__={option: takes[option].annotation for option in options})
    written.__annotations__ |= {
        option: Any for option, kind in written.__annotations__.items() if kind is Parameter.empty
    }
    # Hints of these options only: the other parameters' types may be imported for type checkers only.
    types = get_type_hints(written, vars(sys.modules[make.__module__]), include_extras=True)
    fields: dict[str, Any] = {option: (kind, ...) for option, kind in types.items()}
    model = create_model(name, __config__=ConfigDict(strict=True), **fields)
    try:
        # As JSON, so that a list may be a tuple although types are strict; a date becomes text.
        return dict(model.model_validate_json(json.dumps(options, default=str)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{where}: {name}'s {first['loc'][0]}: {first['msg']}") from error
