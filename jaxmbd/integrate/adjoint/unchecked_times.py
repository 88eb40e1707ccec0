"""diffrax without its checks of times, for times that have been checked already.

diffrax checks while a program runs that times increase and that steps go forward, by calling back to Python, and JAX
keeps no program with such calls in its cache on disk: each new process would compile every motion again.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import Scalar
from jaxmbd.integrate.adjoint.discrete_adjoint import subs_of


class UncheckedTimesAdjoint(dfx.AbstractAdjoint):
    """The adjoint `of`, whose loop is given times that no check has touched; what nothing depends on is not compiled.

    **Arguments:** `of`; `t0`, `t1`, `ts`, `dt0` [s], as they are given to `diffrax.diffeqsolve`.
    """

    of: dfx.AbstractAdjoint
    t0: Scalar
    t1: Scalar
    ts: Array
    dt0: Scalar | None

    def loop(self, **given: Any) -> Any:  # pyright: ignore
        direction = jnp.where(self.t0 < self.t1, 1, -1)  # diffrax's own: in it all times of the loop increase
        dt0 = None if self.dt0 is None else self.dt0 * direction
        start, t0, t1, terms, solver = (given[name] for name in ("init_state", "t0", "t1", "terms", "solver"))
        order = solver.error_order(terms)
        tnext, control = given["stepsize_controller"].init(
            terms, t0, t1, start.y, dt0, given["args"], solver.func, order
        )
        fresh = jnp.minimum(tnext, t1), control
        start = eqx.tree_at(lambda s: (s.tnext, s.controller_state), start, fresh, is_leaf=lambda x: x is None)
        saveat = eqx.tree_at(_times, given["saveat"], replace_fn=lambda _: self.ts * direction)
        return self.of.loop(**given | {"init_state": start, "saveat": saveat, "dt0": dt0})


def _times(saveat: dfx.SaveAt) -> list[Any]:
    return [sub.ts for sub in subs_of(saveat) if sub.ts is not None]
