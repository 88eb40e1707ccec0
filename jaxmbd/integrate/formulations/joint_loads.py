"""Friction by the loads of joints, which is solved together with accelerations and multipliers.

Accelerations and multipliers are affine functions of the k loads N by which friction is applied, `λ(N) = λ₀ + B N`, and
the loads are lengths of reactions, `N = h(λ(N))`. Newton's method solves these k equations. While
`ρ(|∂h/∂λ| |B|) < 1` there is exactly one solution, as there is for each coefficient of friction that is small enough;
beyond that there may be none or two (Painlevé).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program
from jaxmbd.equations.body_laws import local_constraints
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.reactions import reactions
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, StateDerivative
from jaxmbd.model.force.load_friction import rubbing
from jaxmbd.numerics.linear_solve import spd_solver

T = TypeVar("T")

_LAPS = 8  # of Newton's method, which start at the loads without friction
_LAST = 2  # of these with derivatives, after which those of first and second order are exact


class _Rubbing:
    """The joints that rub at a configuration."""

    def __init__(self, at: Configuration) -> None:
        self.at, self.parts, constraints = at, rubbing(at.mechanism.forces), local_constraints(at.mechanism)
        groups = enumerate(at.equations.parts.joints)
        places = {constraints[i].name: (k, n) for k, group in groups for n, i in enumerate(group.members)}
        self.places = [places[part.joint] for part in self.parts]
        frames = [at.near(at.mechanism[part.joint].markers).frames[0] for part in self.parts]
        self.axes = [frame.axis if at.space.dim == 2 else frame.z for frame in frames]

    def wrenches(self, lam: Float[Array, " m"]) -> Float[Array, "k efforts"]:
        """The reactions of the joints by multipliers."""
        by_group = reactions(self.at, lam)
        return jnp.stack([by_group[group][place, -1] for group, place in self.places])

    def loads(self, wrenches: Float[Array, "k efforts"]) -> Float[Array, " k"]:
        """The loads by reactions: a norm of each."""
        each = zip(self.parts, wrenches, self.axes, strict=True)
        return jnp.stack([part.load_by(wrench, axis) for part, wrench, axis in each])


def at_loads(at: Configuration, motion: Any) -> Configuration:
    """The configuration with the loads by the multipliers of a motion or snapshot, for the efforts of friction."""
    if not rubbing(at.mechanism.forces):
        return at
    joints = _Rubbing(at)
    return at.equations.with_loads(joints.loads(joints.wrenches(motion.lam))).at(at.t, at.q)


def balanced(
    equations: Equations, t: Scalar, q: Array, evaluate: Callable[[Equations], T], multipliers: Callable[[T], Array]
) -> T:
    """`evaluate(equations)` with the loads that its `multipliers` give; an affine function of the forces."""
    if not rubbing(equations.mechanism.forces):
        return evaluate(equations)
    free, by_load = _affine(equations, evaluate)
    loads = _balanced_loads(equations.at(t, q), multipliers(free), jnp.stack([multipliers(x) for x in by_load]))
    return jax.tree.map(lambda x, *each: x + sum(n * y for n, y in zip(loads, each, strict=True)), free, *by_load)


def with_balanced_loads(
    equations: Equations, t: Scalar, q: Array, multipliers: Callable[[Equations], Array]
) -> Equations:
    """The equations with the loads that their multipliers, an affine function of the forces, give."""
    if not rubbing(equations.mechanism.forces):
        return equations
    free, by_load = _affine(equations, multipliers)
    return equations.with_loads(_balanced_loads(equations.at(t, q), free, jnp.stack(by_load)))


def _affine(equations: Equations, evaluate: Callable[[Equations], T]) -> tuple[T, list[T]]:
    """What is evaluated without loads, and what it changes by for each unit load."""
    none = jnp.zeros(len(rubbing(equations.mechanism.forces)), equations.mechanism.bodies[0].mass.dtype)
    free, along = jax.linearize(lambda loads: evaluate(equations.with_loads(loads)), none)
    return free, [along(unit) for unit in jnp.eye(len(none), dtype=none.dtype)]


def _balanced_loads(at: Configuration, lam: Float[Array, " m"], columns: Float[Array, "k m"]) -> Float[Array, " k"]:
    """The loads N by the multipliers `λ + N columns`; NaN where they are not unique."""
    joints = _Rubbing(at)
    free, by_load = joints.wrenches(lam), jnp.stack([joints.wrenches(x) for x in columns])
    of_loads = lambda loads: joints.loads(free + jnp.tensordot(loads, by_load, 1))  # noqa: E731
    one = jnp.eye(len(columns), dtype=lam.dtype)

    def step(loads: Array) -> Array:
        return loads - _solved(one - jax.jacfwd(of_loads)(loads), loads - of_loads(loads))

    loads = joints.loads(free)
    for lap in range(_LAPS):
        loads = step(jax.lax.stop_gradient(loads) if lap <= _LAPS - _LAST else loads)
    # A load is a norm: it changes by no more than the norm of what changes, an entry of the matrix `L`, whose spectral
    # radius is below 1 if and only if `(I − L) x = 1` has a positive solution.
    most = _solved(one - jnp.stack([joints.loads(x) for x in by_load], axis=1), jnp.ones_like(loads))
    return jnp.where(jnp.all(most > 0), loads, jnp.nan)


def _solved(matrix: Float[Array, "k k"], right: Float[Array, " k"]) -> Float[Array, " k"]:
    """By the normal equations, which programs can solve; the matrix is near the identity."""
    return spd_solver(matrix.T @ matrix)(matrix.T @ right)


def motion_at(formulation: AbstractFormulation, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
    """`formulation.motion` with friction by loads."""
    return balanced(equations, t, q, lambda e: formulation.motion(e, t, q, v), lambda motion: motion.lam)


def motion_of(formulation: AbstractFormulation, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
    """The same, run as a scalar program where it can be compiled to one."""
    return as_program(motion_at)(formulation, equations, t, q, v)
