"""The state of a mechanism at one instant, with its coordinates and speeds by name."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.arrays import Scalar, constant
from jaxmbd.errors import MechanismError, is_one_of, unknown
from jaxmbd.model.mechanism.layout import Layout
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.states import no_states
from jaxmbd.printing import by_owner, count_of, format_number, readable
from jaxmbd.state.result_codes import RESULTS


def rank_number(rank: int) -> Array:
    """A known rank as `State` holds it; −1 for one that is not known."""
    return constant(np.asarray(rank, jnp.result_type(int)))


class State(eqx.Module):
    """Time `t` [s], coordinates `q (nq,)`, speeds `v (nv,)` and states of parts `z (nz,)`; `state["rod.theta"]`,
    `state["rod.omega"]`, `state["motor.current"]`.

    Quantities that are not among them (in absolute coordinates a joint's angle and its rate, a sensor, an
    energy) need the mechanism: `read(mechanism, state, "R.angle_rate")`.

    `rank`: the rank of the constraint rows at assembly (the number of singular values above 1e-7 of the largest), also
    of the states of a motion from there; −1 where it is not known: of a state made by hand, or from a file without it.
    If it is less than the number of rows, `redundancy(mechanism, state)` names the redundant ones. `result`: the result
    code of the assembly, or of the motion that the state was taken from (see `RESULTS`); values are NaN if it failed.
    `layout`: the names and units of the entries, those of `mechanism.layout`. `print(state)` shows all of them as a
    table by part.

    All states of a mechanism have one structure, so they are carries of `jax.lax.scan`, `cond` and `while_loop`.
    """

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    layout: Layout = eqx.field(static=True)
    rank: Int[Array, ""] = eqx.field(default_factory=lambda: rank_number(-1))
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)
    z: Float[Array, " nz"] = eqx.field(default_factory=no_states)

    def __repr__(self) -> str:
        return readable(self, self._text, t=0, q=1, v=1, **({"z": 1} if len(self.layout.z) else {}))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries of `q`, `v` and `z`."""
        return self.layout.names

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the entries of `q`."""
        return self.layout.q.names

    @property
    def speed_names(self) -> tuple[str, ...]:
        """The names of the entries of `v`."""
        return self.layout.v.names

    def _text(self) -> str:
        head = [
            f"State at t = {format_number(self.t)} s",
            count_of(len(self.q), "coordinate"),
            count_of(len(self.v), "speed"),
            *([count_of(len(self.z), "own state")] if len(self.z) else []),
        ]
        if int(self.rank) >= 0:
            head += [f"{count_of(int(self.rank), 'independent constraint row')}"]
        failure = RESULTS[self.result]
        table = by_owner(self.names, self.layout.units, [*self.q, *self.v, *self.z])
        return "\n".join([", ".join(head), *([failure] if failure else []), table])

    def __getitem__(self, name: str) -> Scalar:
        if is_one_of(name, self.names):
            block, k = self.layout.places[name]
            return getattr(self, block)[k]
        kind = "coordinate, speed or state of a part" if len(self.layout.z) else "coordinate or speed"
        error = unknown(kind, name, self.names)
        raise MechanismError(
            f"{error} A state holds these alone; all else is read with the mechanism, which has the lengths: "
            f"jaxmbd.read(mechanism, state, {name!r})."
        )


def state_of(
    mechanism: Mechanism, t: Array, q: Array, v: Array, rank: Array, result: RESULTS = RESULTS.successful,
    z: Array | None = None,
) -> State:  # fmt: skip
    """Return a state of a mechanism. `z`: the states of parts, by default those that the parts hold."""
    z = (mechanism.z if z is None else z).astype(q.dtype)
    return State(jnp.asarray(t, dtype=q.dtype), q, v, mechanism.layout, rank, result, z)


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
    blocks = {"coordinates": "q", "speeds": "v", "states of parts": "z"}
    for kind, block in blocks.items():
        given, needed = (getattr(layout, block).names for layout in (state.layout, mechanism.layout))
        count = np.shape(getattr(state, block))[-1:]
        if given == needed and count and count != (len(needed),):
            raise MechanismError(
                f"The state has {count_of(count[0], 'number')} in {block}, and its layout {len(needed)} {kind}: "
                f"{_shortened(needed)}."
            )
        if given != needed:
            raise MechanismError(
                f"The state belongs to another mechanism: it has the {kind} {_shortened(given)}; this mechanism has "
                f"{_shortened(needed)}. Get a state from jaxmbd.assemble(mechanism, ...)."
            )


def _shortened(names: tuple[str, ...]) -> str:
    return (", ".join(names[:6]) or "none") + (f", … ({len(names)} in all)" if len(names) > 6 else "")
