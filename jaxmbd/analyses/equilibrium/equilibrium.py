"""Equilibria: positions in which all forces balance, at rest or in steady rotation."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmbd.analyses.assembly.assemble import assemble, tolerance_of
from jaxmbd.analyses.assembly.multistart import guessed
from jaxmbd.analyses.assembly.sides import is_opposed, opposed_text, sides_at
from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.equilibrium.balance import Balance, Rotation, SmallMotions, small_motions
from jaxmbd.analyses.equilibrium.equilibrium_errors import (
    SteadyStateResiduals,
    about_joint,
    contradiction,
    failure_text,
    open_text,
    unsteady,
)
from jaxmbd.analyses.equilibrium.newton_search import NewtonSearch, implicit, settle
from jaxmbd.analyses.simulation.solution import Reaction, Solution, at_instant
from jaxmbd.arrays import Number, Scalar, as_float, combined, constant, frozen, is_concrete, is_known
from jaxmbd.checks import check_finite, check_mapping, check_time
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import AssemblyError, MechanismError, SolveError
from jaxmbd.model.driver import Driver
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.printing import count_of, readable
from jaxmbd.state.result_codes import (
    RESULTS,
    first_failure,
    invalidated,
    is_one_of,
    is_successful,
    raise_unless_successful,
)
from jaxmbd.state.state import State, state_of


class Equilibrium(eqx.Module):
    """An equilibrium: a position in which all forces balance. `print` shows its stability and the state.

    `equilibrium["spring.tension"]` reads a channel of `names`.

    - `mechanism`: the mechanism, with a driver for each fixed coordinate;
    - `state`: the position, and the speeds of the rotation;
    - `rate`: the rotation, as the velocity at the world's origin and the angular velocity, zero at rest;
    - `steps`: the number of steps of the search; `converged`: True if it found an equilibrium; `state.result` says why
      not, and the state is NaN then.
    """

    mechanism: Mechanism
    state: State
    rate: Float[Array, " twist"]
    steps: Int[Array, ""]

    def __repr__(self) -> str:
        return readable(self, self._text, rate=1, steps=0)

    def _text(self) -> str:
        state, rate = self.state, np.asarray(self.rate)
        kind = "steady rotation" if rate.any() else "at rest"
        if not bool(self.converged):
            return f"Equilibrium, {kind}: {RESULTS[state.result]}"
        outcome = f"found in {count_of(int(self.steps), 'step')}"
        fixed = [x.coordinate for x in self.mechanism.drivers if x.name == holder(x.coordinate)]
        fixed_text = f"; held: {', '.join(fixed)}" if fixed else ""
        return f"Equilibrium, {kind}, {self.verdict} ({outcome}){fixed_text}\n{state}"

    @property
    def converged(self) -> Bool[Array, ""]:
        """True if this is an equilibrium."""
        return is_successful(self.state.result)

    @property
    def solution(self) -> Solution:
        """The equilibrium as a solution with a single instant, from which every channel can be read."""
        return at_instant(self.mechanism, self.state)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all channels that `equilibrium[name]` can read."""
        return self.solution.names

    def __getitem__(self, name: str) -> Array:
        return self.solution[name][0]

    @property
    def vdot(self) -> Float[Array, " nv"]:
        """The accelerations, which are not zero if bodies rotate about a distant axis."""
        return self.solution.vdot[0]

    @property
    def lam(self) -> Float[Array, " m"]:
        """The multipliers; those of least norm if constraints are redundant."""
        return self.solution.lam[0]

    def reaction(self, name: str, body: str | None = None, frame: str = "world") -> Reaction:
        """Return the reaction of a joint or driver on one of its bodies: `force (1, dim)` and `moment`, as in
        `Solution`."""
        return self.solution.reaction(name, body, frame)

    def effort(self, name: str) -> Scalar:
        """Return the force [N] or torque [N m] of a driver, `"motor"`, or of a fixed coordinate, `"O.angle"`."""
        return self.solution.effort(holder(name))[0]

    @property
    def small_motions(self) -> SmallMotions:
        """The eigenvalues of the small motions about the equilibrium, and the counts that decide on its stability."""
        return small_motions(self.mechanism, self.rate, self.state.t, self.state.q)

    @property
    def eigenvalues(self) -> Complex[Array, " n"]:
        """The eigenvalues of the small motions [1/s], fastest growing first; −inf for constrained directions."""
        return self.small_motions.eigenvalues

    @property
    def stable(self) -> Bool[Array, ""]:
        """True if every small motion decays or oscillates: none grows, and none is neutral."""
        return frozen(self).small_motions.stable

    @property
    def verdict(self) -> str:
        """The stability: `"stable"`, `"neutral"` (some eigenvalue is zero) or `"unstable (n growing modes)"`."""
        return verdict(frozen(self).small_motions)


def verdict(motions: SmallMotions) -> str:
    """Return the stability that the small motions imply, as text."""
    growing = int(motions.growing)
    if growing:
        return f"unstable ({growing} growing mode{'s' * (growing != 1)})"
    return "neutral" if int(motions.neutral) else "stable"


def equilibrium(
    mechanism: Mechanism,
    guess: Mapping[str, Number] | State | None = None,
    *,
    fixed: Mapping[str, Number] | None = None,
    rotation: Rotation | Mapping[str, Number] | None = None,
    t: Number = 0.0,
    stable: bool = False,
    check: bool = True,
) -> Equilibrium:
    """Find an equilibrium: a position in which all forces balance, at rest or in a steady rotation of the whole
    mechanism.

    `M v̇ + Cᵀ λ = F(q, v, t)` and `Φ(q, t) = 0`, with the speeds `v` of the rotation and their rates `v̇`. Newton's
    method starts at the guess and converges to an equilibrium near it, stable or unstable; if it fails, descent steps
    follow. The result is differentiable (implicit differentiation) with respect to the mechanism and all prescribed
    values.

    **Arguments:**

    - `guess`: starting values of coordinates, as for `assemble`, or a `State`;
    - `fixed`: coordinates with prescribed values, `{"O.angle": 0.3}` `[m, rad]`; `equilibrium.effort("O.angle")` is the
      effort that this takes;
    - `rotation`: a `Rotation`, or the speed of a joint to the ground, `{"spindle.angle": 3.0}` `[rad/s]`;
    - `t`: the time `[s]` of drivers and forces;
    - `stable`: take descent steps from the beginning, also away from saddle points, to a stable equilibrium (without
      rotation, and if the forces have a potential);
    - `check=False`: raise no error. `state.result` is then the result code, for each instance of a batch, and the state
      is NaN where no equilibrium was found.

    **Returns:** an `Equilibrium`.

    **Raises:** `AssemblyError` if the joints cannot be closed; `SolveError` if nothing balances some force, if the
    search did not converge, or if a driver or joint contradicts the rotation.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
        >>> print(f"{hanging['O.angle']:.4f} rad, {hanging.verdict}")
        -1.5708 rad, stable
    """
    check_mechanism(mechanism)
    check_mapping("fixed", fixed, "{'O.angle': 0.3}")
    check_time("equilibrium", t)
    prescribed = {name: as_float(value) for name, value in (fixed or {}).items()}
    for name, value in prescribed.items():
        mechanism.coordinate(name)
        check_finite("fixed", repr(name), value)
    start = _start(mechanism, guess, prescribed, t, check)
    time = constant(np.asarray(t, start.dtype)) if is_concrete(t) else jnp.asarray(t, start.dtype)
    if check:
        check_mass(mechanism, start, time, "equilibrium")
    rate = rate_of(mechanism, rotation, start, time)
    held = holding(mechanism, prescribed)
    found, search, faults = _equilibrium(held, rate, time, start, combined("asarray", stable), rotation is not None)
    result = Equilibrium(held, *found)
    return _checked(result, search, faults, rotation is not None) if check else result


@cached_on_disk
def _equilibrium(
    mechanism: Mechanism, rate: Array, t: Scalar, start: Array, stable: Bool[Array, ""], turns: bool
) -> tuple[tuple[State, Array, Array], NewtonSearch, SteadyStateResiduals]:
    """Return the fields of an `Equilibrium` but the mechanism, since a result that holds users' functions cannot be
    stored."""
    balance = Balance(Equations(mechanism), rate, t)
    fixed = frozen(balance)
    search = settle(fixed, frozen(start), stable)
    faults, tolerance = unsteady(fixed, search.q, turns), tolerance_of(start)
    limits = tolerance * balance.equations.scales.rows
    result = first_failure(
        (~jnp.all(jnp.isfinite(start)), RESULTS.not_assembled),
        (~jnp.all(jnp.abs(search.miss) <= limits), RESULTS.not_balanced),
        (is_opposed(fixed.equations.at(t, search.q).sides()), RESULTS.opposed),
        (faults.contradicts(tolerance), RESULTS.not_steady),
        (~search.done, RESULTS.not_balanced),
    )
    found = settled(mechanism, balance, search.q, search.steps, result)
    return (found.state, found.rate, found.steps), search, faults


def settled(mechanism: Mechanism, balance: Balance, q: Array, steps: Array, result: RESULTS) -> Equilibrium:
    """Return the equilibrium at the position where a search has ended, with its derivatives."""
    q = implicit(balance, q)
    steady = balance.at(q)
    rank = rank_of(balance.equations.scales.jacobian(steady.position.jacobian))
    found, inputs = is_successful(result), (mechanism, balance.rate, balance.t)
    q, v, z = (invalidated(found, x, inputs) for x in (q, steady.v, steady.z))
    return Equilibrium(mechanism, state_of(mechanism, balance.t, q, v, rank, result, z), balance.rate, steps)


def holder(name: str) -> str:
    """Return the name of the driver that fixes a coordinate."""
    return name.replace(".", " ")


def holding(mechanism: Mechanism, fixed: Mapping[str, Array]) -> Mechanism:
    """Return the mechanism with a driver for each fixed coordinate, in the same coordinates `q`."""
    if not fixed:
        return mechanism
    fixing = (eqx.tree_at(lambda d: d.motion, Driver(holder(name), name, 0.0), value) for name, value in fixed.items())
    return mechanism.replaced(drivers=(*mechanism.drivers, *fixing))


def _start(mechanism: Mechanism, guess: Any, fixed: Mapping[str, Array], t: Number, check: bool) -> Array:
    """Return a closed position at which the search starts; the result has no derivative with respect to it."""
    if isinstance(guess, State):
        return frozen(guessed(mechanism, guess))
    mechanism, fixed, guess, t = frozen((mechanism, fixed, guess, t))
    return frozen(assemble(mechanism, fixed, guess=guess, t=t, check=check).q)


def rate_of(mechanism: Mechanism, rotation: Any, start: Array, t: Scalar) -> Float[Array, " twist"]:
    if rotation is None:
        return constant(np.zeros(len(mechanism.space.speeds), start.dtype))
    if isinstance(rotation, Mapping):
        return about_joint(mechanism, rotation, t, start)
    if not isinstance(rotation, Rotation):
        raise MechanismError(
            f"rotation must be a Rotation or the speed of a joint, such as {{'spindle.angle': 3.0}}, got {rotation!r}."
        )
    return rotation.rate(mechanism.space).astype(start.dtype)


def _checked(result: Equilibrium, search: NewtonSearch, faults: SteadyStateResiduals, turns: bool) -> Equilibrium:
    """Return the equilibrium; raise if the search failed or if the state is not steady."""
    state, tolerance = result.state, tolerance_of(result.state.q)
    if not is_known(result, search, faults):
        q, v = raise_unless_successful((state.q, state.v), state.result)
        return eqx.tree_at(lambda e: (e.state.q, e.state.v), result, (q, v))
    mechanism, search, faults, state = frozen((result.mechanism, search, faults, state))
    limits = tolerance * np.asarray(Scales(mechanism).rows)
    if not (np.abs(np.asarray(search.miss)) <= limits).all():
        raise AssemblyError(open_text(mechanism, search.miss))
    if is_one_of(state.result, RESULTS.opposed):
        opposed = opposed_text(sided_joints(mechanism), sides_at(mechanism, state.t, search.q))
        raise AssemblyError(f"The equilibrium that was found is not assembled. {opposed}")
    if is_one_of(state.result, RESULTS.not_steady):
        raise SolveError(contradiction(mechanism, faults, turns, tolerance))
    if is_one_of(state.result, RESULTS.not_balanced):
        raise SolveError(failure_text(mechanism, search, turns))
    return result
