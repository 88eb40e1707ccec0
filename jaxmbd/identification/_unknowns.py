"""What is estimated, `θ`: its numbers, their names, and the numbers of a search that stand for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import OWN, SPEED, START, Experiment
from jaxmbd.identification._stacks import Stack
from jaxmbd.parameters.parameters import Parameter, Parameters


class Unknowns(NamedTuple):
    """What is estimated, `θ`: a pytree of arrays.

    - `parameters`: the parameters by name, which all experiments share;
    - `experiments`: for each stack of experiments (`problem.stacks`) what each of them has alone, by name, with the
      experiments on the first axis: `"start:O.angle"`, `"speed:O.angle"`, `"own:payload"`.
    """

    parameters: dict[str, PyTree]
    experiments: tuple[dict[str, Array], ...]

    def mapped(self, mapping: Callable[[dict[str, PyTree]], dict[str, PyTree]]) -> "Unknowns":
        """Return the unknowns with parameters, shared and own ones, that are mapped by name."""
        own = []
        for values in self.experiments:
            numbers = {name.removeprefix(OWN): value for name, value in values.items() if name.startswith(OWN)}
            own.append(values | {OWN + name: value for name, value in mapping(numbers).items()})
        return Unknowns(mapping(self.parameters), tuple(own))


def start_of(parameters: Parameters, stacks: Sequence[Stack]) -> Unknowns:
    """Return the unknowns at which a search starts: parameters that are free and not own ones of every experiment."""
    everywhere = set.intersection(*(set(stack.experiment.own) for stack in stacks))
    shared = [name for name in parameters.order if name not in parameters.fixed and name not in everywhere]
    own = tuple(jax.vmap(Experiment.unknowns)(stack.experiment) for stack in stacks)
    return Unknowns({name: parameters.start[name] for name in shared}, own)


def drawn_starts(parameters: Parameters, first: Unknowns, count: int, seed: int) -> list[Unknowns]:
    """Return so many starts: the first one, and others drawn from priors and ranges; initial values of experiments are
    the same in all."""
    draws, others = np.random.default_rng(seed), []
    for _ in range(count - 1):
        values = {
            name: jax.tree.map(
                lambda x, f=parameters.free[name]: jnp.asarray(_drawn(f, np.asarray(x), draws), x.dtype), value
            )
            for name, value in first.parameters.items()
        }
        others.append(Unknowns(values, first.experiments))
    return [first, *others]


def _drawn(free: Parameter, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """A value drawn from the prior, else from the range; the start itself if that does not lie in the range."""
    value = (free.within if free.prior is None else free.prior).drawn(start, draws)
    return value if free.within.contains(value) else start


def bounds_of(parameters: Parameters, start: Unknowns) -> tuple[Unknowns, Unknowns]:
    """Return the least and the largest numbers of a search, infinite but for parameters in a `Box`."""
    sides = []
    for side, limit in zip(parameters.bounds(), (-jnp.inf, jnp.inf), strict=True):
        own = []
        for values in start.experiments:
            everywhere = {name: jnp.full_like(x, limit) for name, x in values.items()}
            mine = {n: side[n.removeprefix(OWN)] for n in values if n.startswith(OWN)}
            own.append(everywhere | {n: jnp.broadcast_to(x, values[n].shape) for n, x in mine.items()})
        sides.append(Unknowns({name: side[name] for name in start.parameters}, tuple(own)))
    return sides[0], sides[1]


def names_of_own(stacks: Sequence[Stack], start: Unknowns) -> list[str]:
    """Return the names of the numbers of single experiments, experiment by experiment."""
    kinds, names = {START: "initial ", SPEED: "initial speed of ", OWN: ""}, []
    several = sum(stack.lanes for stack in stacks) > stacks[0].segments
    for stack, own in zip(stacks, start.experiments, strict=True):
        for k, place in enumerate(stack.places):
            where = f" in experiment {place}" * several + f", segment {k % stack.segments}" * (stack.segments > 1)
            for name in sorted(own):
                kind, _, quantity = name.partition(":")
                names.append(kinds[kind + ":"] + quantity + where)
    return names


def check_alike(given: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]) -> None:
    """Raise unless unknowns of experiments belong to those of a problem."""
    shapes = [[{name: jnp.shape(x) for name, x in own.items()} for own in owns] for owns in (given, expected)]
    if shapes[0] != shapes[1]:
        texts = ["; ".join(", ".join(f"{n} {s}" for n, s in own.items()) or "none" for own in x) for x in shapes]
        raise MechanismError(
            f"starting_at: theta has the unknowns of other experiments, {texts[0]}; those of this problem are "
            f"{texts[1]}. Give the values of parameters alone, starting_at(other.parameters)."
        )
