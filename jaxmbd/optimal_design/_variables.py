"""Design variables: named numbers of a mechanism with ranges, as one vector of which the optimiser knows the bounds.

They are declared as the free parameters of `fit` are. Unlike an estimate, an optimum often lies on a bound, which a
smooth map of all real numbers to the range would never reach; so the optimiser works on the numbers themselves,
shifted and scaled, within bounds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import is_concrete
from jaxmbd.checks import check_mapping
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._limits import ON_BOUND
from jaxmbd.parameters.parameters import Build, Free, Parameter, Parameters, collect, declared
from jaxmbd.parameters.ranges import Bounded, Box, Positive, Unbounded
from jaxmbd.user_functions import call_user

_LEAST = 1e-6  # least value of a positive variable, as a share of its starting value
_RANGES = Unbounded, Positive, Bounded, Box
_SPREAD = 3.0  # random starts of a positive variable: its starting value times or divided by up to this factor


class Variables(eqx.Module):
    """Design variables as a vector `x`: a share of the range if there are two bounds, else a multiple of a scale.

    - `parameters`: the free parameters;
    - `shift`, `scale`: physical values are `shift + scale x`; `lower`, `upper`: the bounds of `x`;
    - `labels`: the name of each number; `positive`: those that are spread by factors.
    """

    parameters: Parameters
    start: Float[Array, " n"]
    shift: Float[Array, " n"]
    scale: Float[Array, " n"]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    labels: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    positive: tuple[bool, ...] = eqx.field(static=True)

    def physical(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the physical value of each number."""
        return self.shift + self.scale * x

    def values(self, x: Float[Array, " n"]) -> dict[str, PyTree]:
        """Return the physical values by name."""
        return self.named(self.physical(x))

    def named(self, numbers: Float[Array, " n"]) -> dict[str, PyTree]:
        """Return one number for each variable by their names."""
        return ravel_pytree(self.parameters.start)[1](numbers)

    def mechanism(self, x: Float[Array, " n"]) -> Mechanism:
        """Return the mechanism with these values."""
        return self.parameters.mechanism_at(self.values(x))

    def random(self, count: int, seed: int) -> Float[Array, "count n"]:
        """Return starting points: the start itself, then random ones within the ranges.

        A variable without bounds is drawn from the normal distribution about its start with its scale.
        """
        key = jax.random.key(seed)
        shares = jax.random.uniform(key, (count, len(self.labels)), self.start.dtype)
        return _spread(shares, self.start, self.lower, self.upper, np.asarray(self.positive))

    def on_bounds(self, x: Float[Array, " n"]) -> tuple[str, ...]:
        """Return a text for each variable that lies on one of its bounds."""
        texts = []
        for label, value, low, high in zip(self.labels, x, self.lower, self.upper, strict=True):
            for bound, side in ((low, "lower"), (high, "upper")):
                if abs(float(value - bound)) <= ON_BOUND:
                    texts.append(f"{label} ({side})")
        return tuple(texts)


@trace_once
def _spread(shares: Array, start: Array, lower: Array, upper: Array, positive: Array) -> Float[Array, "count n"]:
    """Return starting points from shares of their distributions."""
    factors = start[None] * _SPREAD ** (2 * shares - 1)
    normal = start[None] + jax.scipy.stats.norm.ppf(jnp.clip(shares, 1e-3, 1 - 1e-3))
    has_both = (jnp.isfinite(lower) & jnp.isfinite(upper))[None]
    return jnp.where(has_both, shares, jnp.where(positive[None], factors, normal)).at[0].set(start)


def _width(within: Box) -> Array:
    """Return the width of a range, rounded so that `lower + width` is not above `upper`: results are valid starts."""
    width = within.upper - within.lower
    return jnp.where(within.lower + width > within.upper, jnp.nextafter(width, 0.0), width)


def variables_of(what: str, mechanism: Mechanism | Build, given: Free) -> Variables:
    """Look up and check design variables: those of a fit, or pairs of bounds, by name.

    **Arguments:** `what`, the verb that the user called, for messages.
    """
    if not isinstance(mechanism, Mechanism) and not callable(mechanism):
        raise MechanismError(
            f"{what}: mechanism must be a Mechanism, or a function from the variables' values to one, got "
            f"{type(mechanism).__name__}."
        )
    if not isinstance(given, list | tuple | str):
        check_mapping(f"{what}: variables", given, "{'length': Parameter(...)}")
    if not given:
        raise MechanismError(f"{what}: variables must name at least one number: {{'length': Parameter(...)}}.")
    ranged = {name: _ranged(name, x) for name, x in given.items()} if isinstance(given, Mapping) else given
    free = {name: _reachable(what, name, variable) for name, variable in declared(mechanism, ranged).items()}
    if not is_concrete(mechanism, free):
        raise MechanismError(f"{what} cannot be compiled (jit, vmap): its steps depend on values.")
    idle = [name for name, variable in free.items() if variable.where is None]
    if idle and isinstance(mechanism, Mechanism):
        raise MechanismError(
            f"{what}: variable {idle[0]!r} has no effect: it needs a place, Parameter('part.number'), or a function "
            "mechanism that takes it."
        )
    found = collect(mechanism, free)
    variables = _vector(found)
    if found.build is not None:
        names = "{" + ", ".join(map(repr, found.start)) + "}"
        built = call_user(what, "mechanism", found.build, found.start, takes=names)
        if not isinstance(built, Mechanism):
            raise MechanismError(f"{what}: the function mechanism must return a Mechanism, got {built!r}.")
    return variables


def _ranged(name: str, variable: object) -> Any:
    """Return a pair of bounds as a range."""
    try:
        return Box(*variable) if isinstance(variable, tuple | list) and len(variable) == 2 else variable
    except MechanismError as error:
        raise MechanismError(f"Variable {name!r}: {error}") from None


def _reachable(what: str, name: str, variable: Parameter) -> Parameter:
    """Return a declaration whose bounds can be reached, and which has a start: the middle of the range if none is given
    and nothing is looked up."""
    within, start = variable.within, variable.start
    if not isinstance(within, _RANGES):
        raise MechanismError(
            f"{what}: variable {name!r} has the range {within}, which is no interval for each number; a variable is "
            "Unbounded(), Positive(), Bounded(lower, upper) or Box(lower, upper). In place of a body's inertia in "
            "space, vary the dimensions that it follows from."
        )
    if variable.prior is not None:
        raise MechanismError(
            f"{what}: variable {name!r} has the prior {variable.prior}, which only fit uses: leave it out."
        )
    if isinstance(within, Bounded):
        within = Box(within.lower, within.upper)
    if variable.where is None and start is None and isinstance(within, Box):
        start = 0.5 * (within.lower + within.upper)
    return replace(variable, start=start, within=within)


def _vector(parameters: Parameters) -> Variables:
    free = parameters.free
    shift, scale, lower, upper, positive = {}, {}, {}, {}, {}
    for name, start in parameters.start.items():
        within = free[name].within
        fill = lambda value, start=start: jax.tree.map(lambda x: jnp.broadcast_to(value, x.shape), start)  # noqa: E731
        low, high, base = -jnp.inf, jnp.inf, 0.0
        if isinstance(within, Box):
            low, high, base, unit = 0.0, 1.0, within.lower, fill(_width(within))
        elif isinstance(within, Positive):
            low, unit = _LEAST, start
        else:
            unit = jax.tree.map(lambda x, of=within: of.physical(jnp.ones_like(x), x), start)
        shift[name], scale[name], lower[name], upper[name] = fill(base), unit, fill(low), fill(high)
        positive[name] = fill(float(isinstance(within, Positive)))
    flats = [ravel_pytree(tree)[0] for tree in (parameters.start, shift, scale, lower, upper, positive)]
    start, base, units, low, high, signs = flats
    listed, units_of = [], []
    for name in sorted(parameters.start):  # as JAX sorts dictionaries
        found = parameters.labels(name)
        listed += found
        units_of += [free[name].unit] * len(found)
    return Variables(
        parameters, jnp.clip((start - base) / units, low, high), base, units, low, high, tuple(listed), tuple(units_of),
        tuple(bool(s) for s in np.asarray(signs)),
    )  # fmt: skip
