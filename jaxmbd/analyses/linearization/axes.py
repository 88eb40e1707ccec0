"""The choice of axes in which the small motions of a rotating body have constant coefficients."""

import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.linearization.independent_coordinates import Choice, choose, own_angular, turning_rates
from jaxmbd.analyses.linearization.linearized_dynamics import linearized, sizes_of
from jaxmbd.analyses.state import State
from jaxmbd.arrays import frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.model.mechanism.mechanism import Mechanism

_TURN = 1e-3  # [rad]: the rotation of the axes between the two instants whose matrices are compared
_LESS = 0.1  # world axes are chosen if the matrix changes by less than this share of its change in body axes
_NONE = 1e-9  # share of the largest entry: smaller changes count as zero


def in_steady_axes(mechanism: Mechanism, state: State, choice: Choice) -> Choice:
    """Return the choice, or another one with angular velocities about world axes in place of rotating axes.

    An asymmetric body that spins freely has constant coefficients in its own axes, a wheel that rolls straight ahead in
    world axes. World axes are chosen if the matrix of the small motions hardly changes in them.
    """
    mechanism, state = frozen((mechanism, state))
    rates = turning_rates(mechanism, state.v)
    owners = {name.rpartition(".")[0] for name in choice.places if name in rates}
    if not owners:
        return choice
    other, _ = choose(mechanism, state, None, [n for n in own_angular(mechanism) if n.rpartition(".")[0] in owners])
    own, about_world = (_change(mechanism, state, c, _TURN / max(rates.values())) for c in (choice, other))
    return other if about_world + _NONE < _LESS * own else choice


def _change(mechanism: Mechanism, state: State, choice: Choice, time: float) -> float:
    """Return the change of the matrix of the small motions after a time, as a share of its largest entry."""
    here = linearized(mechanism, state.t, state.q, state.v, choice, (), ())
    q = Equations(mechanism).at(state.t, here.q).advanced(here.v + 0.5 * time * here.vdot, jnp.asarray(time))
    later = linearized(mechanism, state.t + time, q, here.v + time * here.vdot, choice, (), ())
    size = sizes_of(here.A, here.mass, choice)
    before, after = (np.asarray(x.A * size[None, :] / size[:, None]) for x in (here, later))
    return float(np.abs(after - before).max() / np.abs(before).max())
