"""Free parameters: the numbers of a mechanism, of instruments and of single experiments that are estimated.

The search works on numbers `u`. A range maps them to physical values, so that every trial mechanism is valid.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_finite, check_instance, check_mapping, check_some, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import unit_of_length
from jaxmbd.parameters.inputs import InputPlace
from jaxmbd.parameters.inputs import inputs as inputs_of
from jaxmbd.parameters.labels import labels
from jaxmbd.parameters.numbers import Path, check_apart, find, find_node, is_pattern
from jaxmbd.parameters.places import AbstractPlace, Leaves, Named, Where, claims, place_of
from jaxmbd.parameters.priors import AbstractPrior
from jaxmbd.parameters.ranges import AbstractRange, Unbounded
from jaxmbd.user_functions import StaticFunction, call_user, plain

Build = Callable[[dict[str, PyTree]], Mechanism]
Free: TypeAlias = Mapping[str, object] | Sequence[str]  # how free parameters are declared: by name, or names alone


class Parameter(eqx.Module):
    """A free parameter.

    **Arguments:**

    - `where`: the name of a number or an array, `"spring.stiffness"`, as in `numbers`; a pattern, `"*.mass"`, whose
      matches are free each for itself, under one name; or a function from the mechanism to the leaf that is free, to
      several leaves that share one value, or to a whole module, such as a neural network, whose floating-point arrays
      are then free under one name. A parameter without it that is called as a number of the mechanism, or by a
      pattern, is that number, or one parameter for each match;
    - `start`: the starting value, by default that of the mechanism; needed if the first argument of the problem is a
      function that builds the mechanism, or if the parameter belongs to an instrument; a number, an array, or a module;
    - `within`: the range: `Unbounded()`, `Positive()`, `Bounded(lower, upper)` or `Box(lower, upper)`;
    - `prior`: what is known of it beforehand, `Normal(mean, deviation)` or `LogNormal(median, deviation)`; of each
      number, if there are several: `Normal(0.0, 1.0)` keeps the weights of a network small (weight decay);
    - `unit`: the unit in the table of results; of a number that is named, it is known.
    """

    where: Where | AbstractPlace | None = None
    start: PyTree = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    within: AbstractRange = Unbounded()
    unit: str = eqx.field(default="", static=True)
    prior: AbstractPrior | None = None

    def __check_init__(self) -> None:
        is_place = callable(self.where) and not isinstance(self.where, type)
        if self.where is not None and not is_place and not isinstance(self.where, AbstractPlace | str):
            raise MechanismError(
                "Parameter: where must be a name such as 'spring.stiffness', or a function such as lambda m: "
                f"m['spring'].stiffness, got {self.where!r}; a value to begin with is start=..."
            )
        if self.start is not None and jax.tree_util.all_leaves([self.start]):  # else a tree, such as a network
            check_some("Parameter", "start", self.start)
        elif self.start is not None and is_concrete(self.start):
            for leaf in jax.tree.leaves(eqx.filter(self.start, eqx.is_inexact_array)):
                check_finite("Parameter", "start", leaf, leaf.shape)
        ranges = "a range, Unbounded(), Positive(), Bounded(lower, upper) or Box(lower, upper)"
        check_instance("Parameter: within", self.within, AbstractRange, ranges)
        if self.prior is not None:
            check_instance("Parameter: prior", self.prior, AbstractPrior, "Normal(mean, deviation) or LogNormal(...)")


class Parameters(eqx.Module):
    """All free parameters with their starting values, the inputs, and the mechanism as a function of both.

    `mechanism`, or the function `build` that makes it; `inputs`: where the experiments' own functions and numbers that
    are not estimated belong; `fixed`: the values of parameters that are not free any more.
    """

    mechanism: Mechanism | None
    build: Build | None = eqx.field(static=True)
    free: dict[str, Parameter]
    start: dict[str, PyTree]
    inputs: dict[str, AbstractPlace]
    order: tuple[str, ...] = eqx.field(static=True)  # the names as the user has listed them; JAX sorts dictionaries
    fixed: dict[str, PyTree] = eqx.field(default_factory=dict)

    def unit_of_length(self, own: Mapping[str, PyTree]) -> Scalar | np.floating | np.ndarray:
        """Return the unit of length [m] that suits the mechanism at the start, with an experiment's own values."""
        return unit_of_length(self.mechanism_at({**self.start, **own}))

    def mechanism_at(self, values: Mapping[str, PyTree]) -> Mechanism:
        """Return the mechanism for physical values of the parameters, and for inputs."""
        if self.build is not None:
            takes = "{" + ", ".join(map(repr, values)) + "}"
            whole = {name: self._whole(name, value) for name, value in values.items()}
            built = call_user("fit", "mechanism", self.build, whole, takes=takes)
            check_instance("fit: what the function mechanism returns", built, Mechanism, "a Mechanism")
            return built
        mechanism = self.mechanism
        assert mechanism is not None
        places = _places(self.free) | self.inputs
        found = [(place, values[name]) for name, place in places.items() if place is not None and name in values]
        for place, value in sorted(found, key=lambda x: x[0].is_last):
            mechanism = place.replaced(mechanism, value)
        return mechanism

    def _whole(self, name: str, value: PyTree) -> PyTree:
        """The value of a parameter with what a module holds beside its numbers."""
        start = self.free[name].start if name in self.free else None
        return value if start is None or eqx.is_array(start) else eqx.combine(value, start)

    def labels(self, name: str) -> list[str]:
        """Return the labels of the numbers of a parameter."""
        place, start = self.free[name].where, self.start[name]
        if isinstance(place, Named):
            return place.labels(name, start)
        return labels(name, flat(start).size, place.components if isinstance(place, AbstractPlace) else ())

    def physical(self, u: Mapping[str, PyTree]) -> dict[str, PyTree]:
        """Return the physical values of numbers of the search, for those parameters that are in `u`."""
        return self._mapped(lambda within, x, start: within.physical(x, start), u)

    def unconstrained(self, values: Mapping[str, PyTree]) -> dict[str, PyTree]:
        """Return the numbers of the search of physical values, for those parameters that are in `values`."""
        return self._mapped(lambda within, x, start: within.unconstrained(x, start), values)

    def _mapped(
        self, mapped: Callable[[AbstractRange, Array, Array], Array], values: Mapping[str, PyTree]
    ) -> dict[str, PyTree]:
        return {
            name: jax.tree.map(lambda x, start, f=self.free[name]: mapped(f.within, x, start), value, self.start[name])
            for name, value in values.items()
        }

    def slopes(self, name: str, u: PyTree) -> list[Array]:
        """Return the derivatives of the physical values of one parameter by its numbers of the search, for each of its
        arrays `(n,)`, or `(n, n)` where its numbers depend on one another."""
        of = self.free[name].within.slopes
        slopes = jax.tree.map(
            lambda u, start: (x := of(u, start)).reshape(-1 if x.shape == u.shape else x.shape), u, self.start[name]
        )
        return jax.tree.leaves(slopes)

    def bounds(self) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
        """Return the least and the largest numbers of the search of all parameters."""
        least, largest = (
            {
                name: jax.tree.map(lambda start, f=free, k=k: f.within.bounds(start)[k], self.start[name])
                for name, free in self.free.items()
            }
            for k in (0, 1)
        )
        return least, largest


def collect(
    mechanism: Mechanism | Build,
    free: Free | None,
    inputs: Mapping[str, Where] | Sequence[str] | None = None,
) -> Parameters:
    """Look up and check all free parameters and inputs."""
    is_built = not isinstance(mechanism, Mechanism)
    if is_built and not callable(mechanism):
        raise MechanismError(
            f"fit: mechanism must be a Mechanism, or a function from parameters to one, got {type(mechanism).__name__}."
        )
    parameters = declared(mechanism, free)
    given = _by_name("inputs", inputs, "{'torque': 'motor.force'}")
    if is_built and given:
        raise MechanismError(
            "inputs say where numbers belong in a mechanism; a function that builds it gets the experiments' own "
            "values by name, like parameters: leave inputs out."
        )
    places = {name: _input(mechanism, name, name if where is None else where) for name, where in given.items()}
    for name in places:
        if name in parameters:
            raise MechanismError(f"{name!r} is a free parameter and an input: give one of them another name.")
    start = {}
    for name, parameter in parameters.items():
        start[name] = _start(mechanism, name, parameter)
        check_within(f"Free parameter {name!r} starts at", parameter, start[name])
    if not is_built:
        check_apart(claims(mechanism, _places(parameters) | places))
    known, build = (None, mechanism) if is_built else (mechanism, None)
    return Parameters(known, build, parameters, start, places, tuple(parameters))  # pyright: ignore[reportArgumentType]


def declared(mechanism: Mechanism | Build, free: Free | None) -> dict[str, Parameter]:
    """Return free parameters as they are declared, each with its place: by names of numbers alone, or by name a
    parameter, a range, the name of a number, or a function.

    Who gives no place means the number, or by a pattern the numbers, of the parameter's own name.
    """
    found: dict[str, Parameter] = {}
    for name, given in _by_name("free", free, "{'k': 'spring.stiffness'}").items():
        parameter = _parameter(name, given)
        placed = _placed(mechanism, name, parameter) if isinstance(mechanism, Mechanism) else {name: parameter}
        for taken in found.keys() & placed.keys():
            raise MechanismError(f"Two entries declare {taken!r}, the last by {name!r}: leave one of them out.")
        found |= placed
    return found


def _by_name(what: str, given: Any, example: str) -> dict[str, Any]:
    """Entries by name, None for names alone."""
    if isinstance(given, list | tuple | str):
        given = dict.fromkeys((given,) if isinstance(given, str) else checked_names(what, given, "rod.mass"))
    check_mapping(what, given, example)
    return dict(given or {})


def _parameter(name: str, given: object) -> Parameter:
    if given is None or isinstance(given, AbstractRange):
        return Parameter(within=Unbounded() if given is None else given)
    if isinstance(given, Parameter):
        return given
    if isinstance(given, str | AbstractPlace) or (callable(given) and not isinstance(given, type)):
        return Parameter(given)
    raise MechanismError(
        f"Free parameter {name!r} must be a name such as 'spring.stiffness', a function such as lambda m: "
        f"m['spring'].stiffness, or Parameter(...), got {given!r}."
    )


def _placed(mechanism: Mechanism, name: str, parameter: Parameter) -> dict[str, Parameter]:
    """A parameter with its place; one for each number if it is declared by a pattern alone."""
    where = parameter.where
    if where is None and is_pattern(name):
        places: dict[str, AbstractPlace] = {one.name: Named((one,), False) for one in find(mechanism, name)}
    elif where is None and parameter.start is None and "." not in name:
        raise MechanismError(
            f"Free parameter {name!r} needs a place or a start value: Parameter('part.number'), or a function "
            "where=lambda m: m['part'].number; Parameter(start=..., within=...), if it is none of the mechanism's "
            "numbers."
        )
    elif where is None and parameter.start is not None and not _is_number(mechanism, name):
        return {name: parameter}  # of an instrument
    else:
        places = {name: place_of(f"Free parameter {name!r}", name if where is None else where, mechanism)}
    units = {one: parameter.unit or (x.unit(mechanism) if isinstance(x, Named) else "") for one, x in places.items()}
    return {one: replace(parameter, where=place, unit=units[one]) for one, place in places.items()}


def _is_number(mechanism: Mechanism, name: str) -> bool:
    try:
        return bool(find(mechanism, name))
    except MechanismError:
        return False


def _input(mechanism: Any, name: str, where: Where) -> AbstractPlace:
    """The place of an input, which may take a function or a module there; or the input over time of that name."""
    if isinstance(where, str) and where in inputs_of(mechanism) and find_node(mechanism, where) is None:
        return InputPlace(where)
    place = place_of(f"Input {name!r}", where, mechanism)
    if not isinstance(place, Named) or (place.numbers[0].index is not None and not place.is_pattern):
        return place
    if place.is_pattern:
        raise MechanismError(f"Input {name!r} must be one number, array or function, got the pattern {where!r}.")
    return Leaves(Path(place.numbers[0].path))


def _places(free: Mapping[str, Parameter]) -> dict[str, Any]:
    return {name: parameter.where for name, parameter in free.items()}


def check_within(what: str, parameter: Parameter, value: PyTree) -> None:
    """Raise, beginning with `what`, unless a value lies inside the range of its parameter."""
    for leaf in jax.tree.leaves(value):
        if not parameter.within.contains(np.asarray(leaf)):
            raise MechanismError(f"{what} {np.asarray(leaf)}, outside its range {parameter.within}.")


def _start(mechanism: Mechanism | Build, name: str, parameter: Parameter) -> PyTree:
    """Return the starting value of a parameter."""
    place: Any = parameter.where
    if isinstance(place, str):
        raise MechanismError(
            f"Free parameter {name!r}: {place!r} names a number of a mechanism, and here a function builds it: give "
            "Parameter(start=..., within=...)."
        )
    if not isinstance(mechanism, Mechanism) or place is None:
        if parameter.start is None:
            raise MechanismError(f"Free parameter {name!r} needs a start value, Parameter(start=..., within=...).")
        return _numbers(name, parameter.start)
    value = place.value(f"Free parameter {name!r}", mechanism)
    return value if parameter.start is None else start_like(name, parameter.start, value)


def start_like(name: str, start: PyTree, value: PyTree) -> PyTree:
    """Return a starting value, a number for all leaves or a tree of its own, as a tree like `value`."""
    numbers = _numbers(name, start)
    if eqx.is_array(numbers) and (numbers.ndim == 0 or not eqx.is_array(value)):
        return jax.tree.map(lambda x: jnp.broadcast_to(numbers, x.shape), value)
    structure = jax.tree.structure(value)
    like = _numbers(name, value)
    shapes = [[x.shape for x in jax.tree.leaves(tree)] for tree in (numbers, like)]
    if shapes[0] != shapes[1] or jax.tree.structure(numbers) != jax.tree.structure(like):
        raise MechanismError(
            f"Free parameter {name!r}: the start is {eqx.tree_pformat(numbers)}, but it must be like "
            f"{eqx.tree_pformat(like)}."
        )
    return jax.tree.unflatten(structure, jax.tree.leaves(numbers))


def _numbers(name: str, start: PyTree) -> PyTree:
    """The floating-point numbers of a starting value, which may be a module. Its functions, which are nodes in a
    mechanism and leaves in a module, do not count."""
    bare = jax.tree.map(plain, start, is_leaf=lambda x: isinstance(x, StaticFunction))
    numbers = eqx.filter(as_float(bare), eqx.is_inexact_array)
    if not jax.tree.leaves(numbers):
        raise MechanismError(f"Free parameter {name!r}: start holds no numbers, got {start!r}.")
    return numbers


def flat(value: PyTree) -> np.ndarray:
    """Return all numbers of a parameter as one vector."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(value)])
