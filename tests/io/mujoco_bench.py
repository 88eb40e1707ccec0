"""States and accelerations of a mechanism that was read from MJCF, and those of MuJoCo for the same file."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd.engine import as_program

FREE, BALL = 0, 1
POSE, TWIST = ("x", "y", "z", "e0", "e1", "e2", "e3"), ("vx", "vy", "vz", "omega_x", "omega_y", "omega_z")
COORDINATES = {2: ("displacement",), 3: ("angle",), BALL: ("e0", "e1", "e2", "e3"), FREE: POSE}
SPEEDS = {2: ("displacement_rate",), 3: ("angle_rate",), BALL: TWIST[3:], FREE: TWIST}


def joints(m: Any) -> list[tuple[int, int, str]]:
    """Number, kind, and the name here: a free joint's coordinates are those of its body."""
    kinds = m.jnt_type.tolist()
    return [(j, kinds[j], m.body(m.jnt_bodyid[j]).name if kinds[j] == FREE else m.joint(j).name) for j in range(m.njnt)]


def put(mujoco: Any, m: Any, d: Any, q: dict[str, float], v: dict[str, float]) -> None:
    """Give MuJoCo a state by the names of coordinates and speeds here, and compute its accelerations.

    A free body is placed by its centre of mass here, by the origin of its frame there.
    """
    for j, kind, name in joints(m):
        place = np.array([q[f"{name}.{own}"] for own in COORDINATES[kind]])
        rate = np.array([v[f"{name}.{own}"] for own in SPEEDS[kind]])
        if kind == FREE:
            turn = Rotation.from_quat(place[3:], scalar_first=True)
            arm = turn.apply(-m.body_ipos[m.jnt_bodyid[j]])
            place[:3] += arm
            rate[:3] += np.cross(turn.apply(rate[3:]), arm)
        d.qpos[m.jnt_qposadr[j] :][: len(place)] = place
        d.qvel[m.jnt_dofadr[j] :][: len(rate)] = rate
    mujoco.mj_forward(m, d)


def accelerations_there(m: Any, d: Any) -> dict[str, float]:
    """MuJoCo's accelerations by the names of the speeds here."""
    named: dict[str, float] = {}
    for j, kind, name in joints(m):
        first = m.jnt_dofadr[j]
        rate = d.qacc[first:][: len(SPEEDS[kind])].copy()
        if kind == FREE:
            turn = Rotation.from_quat(d.xquat[m.jnt_bodyid[j]], scalar_first=True)
            arm, omega = turn.apply(m.body_ipos[m.jnt_bodyid[j]]), turn.apply(d.qvel[first + 3 : first + 6])
            rate[:3] += np.cross(turn.apply(rate[3:]), arm) + np.cross(omega, np.cross(omega, arm))
        named |= {f"{name}.{own}": float(x) for own, x in zip(SPEEDS[kind], rate, strict=True)}
    return named


def _terms(
    equations: mbd.Equations, q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[Array, Array, Array, Array]:
    at = equations.at(jnp.zeros((), q.dtype), q)
    return at.inertia.matrix(), at.force(v), at.jacobian, at.gamma(v)


def accelerations_here(mechanism: Any, q: np.ndarray, v: np.ndarray) -> list[dict[str, float]]:
    """`v̇` of `M v̇ + Cᵀ λ = F`, `C v̇ = γ`, by name, for each row of coordinates and speeds."""
    equations, found = mbd.Equations(mechanism), []
    terms = jax.vmap(lambda q, v: as_program(_terms)(equations, q, v))(jnp.asarray(q), jnp.asarray(v))
    for M, F, C, gamma in zip(*map(np.asarray, terms), strict=True):
        system = np.block([[M, C.T], [C, np.zeros((len(C), len(C)))]])
        vdot = np.linalg.lstsq(system, np.concatenate([F, gamma]), rcond=None)[0][: len(M)]
        found.append(dict(zip(mechanism.speed_names, vdot.tolist(), strict=True)))
    return found


def largest_difference(there: dict[str, float], here: dict[str, float]) -> float:
    """Of accelerations by name, relative to the largest one."""
    return max(abs(here[name] - there[name]) for name in there) / max(map(abs, there.values()))
