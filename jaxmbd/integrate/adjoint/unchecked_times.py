"""An adjoint that removes diffrax's run-time checks of times, for times that have been checked already.

diffrax checks at run time, by a Python callback, that times increase and that steps go forward. JAX does not store
programs with callbacks in its compilation cache on disk, so that each new process would compile every motion again.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import Scalar
from jaxmbd.integrate.adjoint.discrete_adjoint import subs_of


class UncheckedTimesAdjoint(dfx.AbstractAdjoint):
    """The adjoint `of`, whose loop receives the original times; the checks become dead code and are not compiled.

    **Arguments:** `of`; `t0`, `t1`, `ts`, `dt0` [s], as passed to `diffrax.diffeqsolve`.
    """

    of: dfx.AbstractAdjoint
    t0: Scalar
    t1: Scalar
    ts: Array
    dt0: Scalar | None

    def loop(self, **arguments: Any) -> Any:  # pyright: ignore
        direction = jnp.where(self.t0 < self.t1, 1, -1)  # as in diffrax: times `t · direction` increase in its loop
        dt0 = None if self.dt0 is None else self.dt0 * direction
        start, t0, t1, terms, solver = (arguments[name] for name in ("init_state", "t0", "t1", "terms", "solver"))
        order = solver.error_order(terms)
        tnext, control = arguments["stepsize_controller"].init(
            terms, t0, t1, start.y, dt0, arguments["args"], solver.func, order
        )
        first_step = jnp.minimum(tnext, t1), control
        start = eqx.tree_at(lambda s: (s.tnext, s.controller_state), start, first_step, is_leaf=lambda x: x is None)
        saveat = eqx.tree_at(_times, arguments["saveat"], replace_fn=lambda _: self.ts * direction)
        return self.of.loop(**arguments | {"init_state": start, "saveat": saveat, "dt0": dt0})


def _times(saveat: dfx.SaveAt) -> list[Any]:
    return [sub.ts for sub in subs_of(saveat) if sub.ts is not None]
