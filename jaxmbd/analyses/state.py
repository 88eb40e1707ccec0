"""The state of a mechanism at one instant, with its coordinates and speeds by name."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.analyses.result_codes import RESULTS
from jaxmbd.arrays import Scalar, constant
from jaxmbd.errors import MechanismError, is_one_of, unknown
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.printing import by_owner, count_of, format_number, readable


def rank_number(rank: int) -> Array:
    """A known rank as `State` holds it; −1 for one that is not known."""
    return constant(np.asarray(rank, jnp.result_type(int)))


class State(eqx.Module):
    """Time `t` [s], coordinates `q (nq,)` and speeds `v (nv,)`; `state["rod.theta"]`, `state["rod.omega"]`.

    Quantities that are not entries of `q` or `v` (in absolute coordinates a joint's angle and its rate, a sensor, an
    energy) need the mechanism: `read(mechanism, state, "R.angle_rate")`.

    `rank`: the rank of the constraint rows at assembly (the number of singular values above 1e-7 of the largest), also
    of the states of a motion from there; −1 where it is not known: of a state made by hand, or from a file without it.
    If it is less than the number of rows, `redundancy(mechanism, state)` names the redundant ones. `result`: the result
    code of the assembly, or of the motion that the state was taken from (see `RESULTS`); values are NaN if it failed.
    `units`: the units of the coordinates, then of the speeds. `print(state)` shows coordinates and speeds as a table by
    body or joint.

    All states of a mechanism have one structure, so they are carries of `jax.lax.scan`, `cond` and `while_loop`.
    """

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    coordinate_names: tuple[str, ...] = eqx.field(static=True)
    speed_names: tuple[str, ...] = eqx.field(static=True)
    rank: Int[Array, ""] = eqx.field(default_factory=lambda: rank_number(-1))
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)
    units: tuple[str, ...] = eqx.field(static=True, default=())

    def __repr__(self) -> str:
        return readable(self, self._text, t=0, q=1, v=1)

    def _text(self) -> str:
        names = (*self.coordinate_names, *self.speed_names)
        units = self.units or ("",) * len(names)
        head = [
            f"State at t = {format_number(self.t)} s",
            count_of(len(self.q), "coordinate"),
            count_of(len(self.v), "speed"),
        ]
        if int(self.rank) >= 0:
            head += [f"{count_of(int(self.rank), 'independent constraint row')}"]
        failure = RESULTS[self.result]
        lines = [", ".join(head), *([failure] if failure else []), by_owner(names, units, [*self.q, *self.v])]
        return "\n".join(lines)

    def __getitem__(self, name: str) -> Scalar:
        if is_one_of(name, self.coordinate_names):
            return self.q[self.coordinate_names.index(name)]
        if is_one_of(name, self.speed_names):
            return self.v[self.speed_names.index(name)]
        error = unknown("coordinate or speed", name, (*self.coordinate_names, *self.speed_names))
        raise MechanismError(
            f"{error} A state holds these alone; all else is read with the mechanism, which has the lengths: "
            f"jaxmbd.read(mechanism, state, {name!r})."
        )


def state_of(
    mechanism: Mechanism, t: Array, q: Array, v: Array, rank: Array, result: RESULTS = RESULTS.successful
) -> State:
    """Return a state of a mechanism, with the names and units of its coordinates and speeds."""
    units = (*mechanism.coordinate_units, *mechanism.speed_units)
    names = mechanism.coordinate_names, mechanism.speed_names
    return State(jnp.asarray(t, dtype=q.dtype), q, v, *names, rank, result, units)


def check_state(mechanism: Mechanism, state: State, call: str = "") -> None:
    """Raise unless `state` is a State of this mechanism. `call`: the function with its arguments, in their order.

    >>> example = mbd.examples.get("pendulum")
    >>> mbd.extend.check_state(example.mechanism, example.state())
    """
    check_mechanism(mechanism)
    if not isinstance(state, State):
        order = f" The order is {call}." if call else ""
        given = type(state).__name__
        raise MechanismError(f"state must be a State from jaxmbd.assemble(mechanism, ...), got {given}.{order}")
    if state.coordinate_names != mechanism.coordinate_names:
        raise MechanismError(
            f"The state belongs to another mechanism: it has the coordinates {_shortened(state.coordinate_names)}; "
            f"this mechanism has {_shortened(mechanism.coordinate_names)}. Get a state from "
            "jaxmbd.assemble(mechanism, ...)."
        )


def _shortened(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f", … ({len(names)} in all)" if len(names) > 6 else "")
