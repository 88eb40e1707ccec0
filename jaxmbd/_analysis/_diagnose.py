"""What went wrong, in mechanical terms: looked up after a failure, at the last state that was reached."""

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd._analysis._solution import Solution
from jaxmbd._equations import Equations
from jaxmbd._mechanism import Mechanism

_RANK = 1e-10


def redundant_rows(mechanism: Mechanism, t: Array, q: Array) -> tuple[int, list[str]]:
    """The rank of `C` (singular values below 1e-10 of the largest count as zero), and the joints that take part
    in a dependence between rows."""
    C = np.asarray(Equations(mechanism).jacobian(t, q))
    left, values, _ = np.linalg.svd(C)
    rank = int(np.sum(values > _RANK * max(values.max(initial=0.0), 1e-300)))
    sizes = mechanism.constraint_sizes()
    labels = [p.name for p, n in zip(mechanism.constraints(), sizes, strict=True) for _ in range(n)]
    share = np.abs(left[:, rank:]).max(axis=1, initial=0.0)
    return rank, list(dict.fromkeys(name for name, s in zip(labels, share, strict=True) if s > 1e-6))


def well_posed(mechanism: Mechanism, t: Array, q: Array) -> bool:
    """Whether the rows of `C` are independent at a position."""
    return redundant_rows(mechanism, t, q)[0] == sum(mechanism.constraint_sizes())


def redundant_text(mechanism: Mechanism, t: Array, q: Array) -> str:
    """The message for constraints that repeat one another."""
    rank, names = redundant_rows(mechanism, t, q)
    rows = sum(mechanism.constraint_sizes())
    return (
        f"Redundant constraints: {rows} rows have rank {rank} at the start. The dependent rows belong to "
        f"{', '.join(map(repr, names))}. Remove a joint that only repeats what the others enforce, or replace it by "
        "one with fewer rows (a Revolute by a PinInSlot, say); if the position is singular, start off it."
    )


def failure_text(solution: Solution, t: Array, q: Array, v: Array) -> str:
    """The message for an integration that did not reach its end."""
    mechanism = solution.mechanism
    steps, where = int(solution.stats["num_steps"]), f"t = {float(t):.6g} s"
    head = f"The simulation stopped at {where} after {steps} steps"
    if not (np.isfinite(np.asarray(q)).all() and np.isfinite(np.asarray(v)).all()):
        return f"{head}: the state is no longer finite. A force grows without bound, or a tolerance is far too loose."
    bad = _bad_force(mechanism, t, q, v)
    if bad:
        return f"{head}: {bad}"
    motion = solution.method.motion(Equations(mechanism), jnp.asarray(t), q, v)
    rank, names = redundant_rows(mechanism, t, q)
    rows = sum(mechanism.constraint_sizes())
    if rank < rows or not np.isfinite(np.asarray(motion.vdot)).all():
        return (
            f"{head}, at a singular position: the {rows} constraint rows have rank {rank} there (joints "
            f"{', '.join(map(repr, names)) or 'unknown'}). A looser tolerance or a fixed step may carry it through; if "
            "the mechanism locks there (a limit position, a rod stretched by a driver), change its dimensions or motion."
        )
    if solution.result == dfx.RESULTS.max_steps_reached:
        return (
            f"{head} (max_steps reached), on average {float(t - solution.ts[0]) / max(steps, 1):.3g} s each. The "
            "motion may be too stiff for an explicit solver (try diffrax.Kvaerno5()), pass near a singular position, or "
            "need more steps: raise max_steps, or loosen rtol and atol."
        )
    return f"{head}: {dfx.RESULTS[solution.result] or 'the solver gave up'}"


def _bad_force(mechanism: Mechanism, t: Array, q: Array, v: Array) -> str:
    """Name the bodies on which the applied force is not finite, if any."""
    force = np.asarray(Equations(mechanism).force(jnp.asarray(t), q, v)).reshape(len(mechanism.bodies), -1)
    bodies = [b.name for b, f in zip(mechanism.bodies, force, strict=True) if not np.isfinite(f).all()]
    if not bodies:
        return ""
    return f"the applied force on {', '.join(map(repr, bodies))} is not finite there. Check the force laws that act on it."
