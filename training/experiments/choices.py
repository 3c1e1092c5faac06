"""A choice in a file, `"fedprox"` or `{ name = "fedprox", mu = 0.01 }`, and the registries that it picks from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model, validate_call

from training.experiments.errors import ConfigError
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
from training.recipe import HeadFactory
from training.schedules import Constant, Cosine, MultiStep, Schedule

T = TypeVar("T")
Choice = str | dict[str, Any]


def learned(*, bias: bool = True) -> HeadFactory:
    """The usual one."""
    return LearnedHead if bias else unbiased_head


def orthonormal(*, scale: float = 1.0) -> HeadFactory:
    """SphereFed's, times a temperature."""
    return orthonormal_head if scale == 1 else Orthonormal(scale)


def simplex(*, scale: float = 1.0) -> HeadFactory:
    """FedETF's, its class vectors of length β = `scale`."""
    return Simplex(scale)


def tammes(*, steps: int = 1000, lr: float = 0.1) -> HeadFactory:
    """Pushed apart by SGD."""
    return Tammes(steps, lr)


def constant() -> Schedule:
    """η in every round."""
    return Constant()


def cosine() -> Schedule:
    """Half a cosine over the rounds."""
    return Cosine()


def multi_step(*, milestones: tuple[int, ...], gamma: float = 0.1) -> Schedule:
    """Times γ at each milestone."""
    return MultiStep(milestones, gamma)


HEADS: dict[str, Callable[..., HeadFactory]] = {
    "learned": learned,
    "normalised": lambda: NormalisedHead,
    "random": lambda: random_head,
    "uniform": lambda: uniform_head,
    "orthonormal": orthonormal,
    "simplex": simplex,
    "tammes": tammes,
}
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "cosine": cosine,
    "multi-step": multi_step,
}


def chosen(registry: Mapping[str, Callable[..., T]], choice: Choice, where: str) -> T:
    """What a choice makes.

    Raises:
        ConfigError: it names nothing in the registry, an option that there isn't, or a value that an option can't have.
    """
    options = {} if isinstance(choice, str) else dict(choice)
    name = choice if isinstance(choice, str) else options.pop("name", None)
    return called(registry, name, options, where)


def called(
    registry: Mapping[str, Callable[..., T]], name: object, options: Mapping[str, Any], where: str
) -> T:
    """The named maker's result under these options.

    Raises:
        ConfigError: as `chosen`.
    """
    make = maker(registry, name, where)
    check_options(make, str(name), options, where)
    checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(make)
    try:
        return checked(**options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {name}'s {option}: {first['msg']}") from error
    except ValueError as error:
        raise ConfigError(f"{where}: {name}'s {error}") from error


def check_options(make: Callable[..., Any], name: str, options: Mapping[str, Any], where: str) -> None:
    """Refuse options that a maker does not have, or lacks.

    Raises:
        ConfigError: the first of them, and which there are.
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


def check_later(
    registry: Mapping[str, Callable[..., Any]], name: str, options: Mapping[str, Any], where: str
) -> None:
    """Refuse what cannot be called later, when training is done: `called` sees to its own.

    Raises:
        ConfigError: as `called`; values are of their option's type as they stand, with no text for a number.
    """
    make = maker(registry, name, where)
    check_options(make, name, options, where)
    takes = {each.name: each for each in signature(make).parameters.values() if each.name in options}
    written = {option: parameter.annotation for option, parameter in takes.items()}
    # Of these options alone: what else a maker takes may be imported for type checkers only.
    types = get_type_hints(SimpleNamespace(__annotations__=written), make.__globals__, include_extras=True)
    fields: dict[str, Any] = {option: (kind, ...) for option, kind in types.items()}
    try:
        create_model(name, __config__=ConfigDict(strict=True), **fields).model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{where}: {name}'s {first['loc'][0]}: {first['msg']}") from error


def maker(registry: Mapping[str, T], name: object, where: str) -> T:
    """What a registry has under a name.

    Raises:
        ConfigError: nothing.
    """
    if not isinstance(name, str) or name not in registry:
        told = "a table needs a `name`" if name is None else f"there is no {name!r}"
        raise ConfigError(f"{where}: {told}; it is one of {', '.join(sorted(registry))}")
    return registry[name]
