"""Multiple shooting: a motion in segments, each from a state of its own, that are to join.

Over a long or unstable motion a small change of the start grows so much that its end has no usable derivative. In a
short segment it does not. The states at which segments start become unknowns, and the jumps from the end of one segment
to the start of the next one are to vanish: rows of a least-squares problem (identification), or equations of a
nonlinear programme (optimal control).

A state is given by numbers, a `StateChart`: the values of coordinates and speeds by name, as many as determine it, and
of states of parts. So the unknowns are independent, and each segment starts with an assembly, at a state that satisfies
the constraints.

Source: Bock, Plitt, *A multiple shooting algorithm for direct solution of optimal control problems*, IFAC Proc. 17
(1984); Bock, *Recent advances in parameter identification techniques for O.D.E.* (1983).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import assemble, rate_channel
from jaxmbd.analyses.assembly.position_solve import is_modulo_turns
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.space.vectors import nearest_turn
from jaxmbd.state.output_channels import read
from jaxmbd.state.state import State


class StateChart(eqx.Module):
    """Names of coordinates, speeds and states of parts, whose values determine a state.

    The numbers `x` of a state are the values of the speeds, then those of the coordinates, then those of the states of
    parts: all of them, or none, where they are those of a guess. Speeds and coordinates may be given as for
    `assemble`: `"O.angle"` is a coordinate, and as a speed its rate.
    """

    speeds: tuple[str, ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    own_states: tuple[str, ...] = eqx.field(static=True, default=())

    def channels(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the output channel of each number."""
        return (*(rate_channel(mechanism, name) for name in self.speeds), *self.coordinates, *self.own_states)

    def state(self, mechanism: Mechanism, x: Float[Array, " n"], t: Any, guess: State | None = None) -> State:
        """Return the state with these numbers, near a guess; it is not checked."""
        speeds, coordinates, own = jnp.split(x, np.cumsum([len(self.speeds), len(self.coordinates)]))
        state = assemble(
            mechanism, dict(zip(self.coordinates, coordinates, strict=True)), guess=guess,
            speeds=dict(zip(self.speeds, speeds, strict=True)), t=t, check=False,
        )  # fmt: skip
        z = own if self.own_states else state.z if guess is None else guess.z
        return eqx.tree_at(lambda s: s.z, state, z)

    def numbers(self, mechanism: Mechanism, state: State) -> Float[Array, " n"]:
        """Return the numbers of a state."""
        channels = self.channels(mechanism)
        values = read(mechanism, state, tuple(dict.fromkeys(channels)))
        return jnp.stack([values[channel] for channel in channels])

    def series(self, solution: Solution) -> Float[Array, "times n"]:
        """Return the numbers of the states of a motion."""
        channels = self.channels(solution.mechanism)
        series = solution.read(tuple(dict.fromkeys(channels)))
        return jnp.stack([series[channel] for channel in channels], axis=1)

    def scales(self, mechanism: Mechanism) -> Float[Array, " n"]:
        """Return what one unit is of each number: a radian, the mechanism's units of length and time, the size of a
        state of a part."""
        units, scales, own = channel_units(mechanism), Scales(mechanism), mechanism.layout.z
        sizes = {name: jnp.asarray(size) for name, size in zip(own.names, own.sizes, strict=True)}
        quantity = lambda name: sizes.get(name, jnp.asarray(scales.quantity(units[name])))  # noqa: E731
        return jnp.stack([quantity(channel) for channel in self.channels(mechanism)])

    def jumps(
        self, mechanism: Mechanism, ends: Float[Array, "*batch n"], starts: Float[Array, "*batch n"]
    ) -> Float[Array, "*batch n"]:  # fmt: skip
        """Return the differences from the ends of segments to the starts of the next ones.

        Angles that are read modulo whole turns, such as a body's yaw, differ by half a turn at most.
        """
        turns = [is_modulo_turns(mechanism, channel) for channel in self.channels(mechanism)]
        return (jnp.where(jnp.asarray(turns), nearest_turn(ends, starts), ends) if any(turns) else ends) - starts
