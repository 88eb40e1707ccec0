"""Speeds of least kinetic energy that satisfy linear conditions, and what they need of the masses.

A body without mass or inertia about an axis makes `M` singular, unless joints carry it so that all motions have some.
Where the constraints and prescribed speeds leave no choice the speeds are those without any mass: a mechanism that its
drivers move completely has positions, speeds and accelerations whatever its masses are. The equations of motion need a
regular `M`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.arrays import Scalar, frozen, is_concrete
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.inertia import AbstractInertia
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.flexible import masses_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.upstream.equinox_internals import any_instance

_REGULAR = 1e-12  # eigenvalues of the mass matrix, scaled to a unit diagonal, that are smaller count as zero
_NOTHING = 1e-8  # share of the largest root of a diagonal entry of M below which such a root counts as zero
_THIN = 1e-14  # share of a body's largest principal moment below which a moment counts as zero
_SHARE = 0.1  # share of the largest component of a direction without inertia from which a speed is named


def may_lack_inertia(mechanism: Mechanism) -> bool:
    """Return True unless all bodies are known to have mass, and inertia about every axis."""
    known = frozen([(body.mass, body.inertia) for body in mechanism.bodies])
    return not is_concrete(known) or any(frozen(body).lacks_inertia for body in mechanism.bodies)


def least_energy(
    at: Configuration, rows: Float[Array, "k nv"], rates: Float[Array, " k"], may_lack: bool
) -> Float[Array, " nv"]:
    """Return the speeds of least kinetic energy for given rates of rows that have no units.

    User-defined generalized speeds are measured from the slowest motion, since bodies may move where all of them are
    zero. `may_lack`: some inertia may be zero; the speeds are NaN if they then depend on it.
    """
    inertia, has_speeds = at.inertia, jnp.ones((), bool)
    if may_lack:
        inertia, has_speeds = _metric(at, rows)
    slowest = at.slowest()
    if rows.shape[0] == 0:
        v = jnp.zeros(rows.shape[1], at.q.dtype) if slowest is None else slowest
        return jnp.where(has_speeds, v, jnp.nan)
    rates = rates if slowest is None else rates - rows @ slowest
    v = least_norm(rows, rates, inertia)
    return jnp.where(has_speeds, v if slowest is None else v + slowest, jnp.nan)


def _metric(at: Configuration, rows: Array) -> tuple[AbstractInertia, Bool[Array, ""]]:
    """Return an inertia in whose metric the speeds are found, and whether the given inertia, or the rows, determine
    them.

    If `M` is singular, unit numbers take the place of those of the bodies without inertia.
    """
    equations = at.equations
    masses, tensors = masses_of(equations.mechanism.bodies)
    lacks = jax.lax.stop_gradient(_lacks_inertia(masses, tensors))
    M, fixed_rows = jax.lax.stop_gradient((at.inertia.matrix(), rows))
    any_lacks = any_instance(jnp.any(lacks))
    is_singular = jnp.any(lacks) & jax.lax.cond(any_lacks, lambda: ~_is_regular(M), lambda: jnp.zeros((), bool))
    is_determined = jax.lax.cond(
        any_lacks,
        lambda: rank_of(fixed_rows * equations.scales.speeds[None]) == M.shape[0],
        lambda: jnp.zeros((), bool),
    )
    replaced, length = lacks & is_singular, equations.scales.length
    unit = length**2 * jnp.broadcast_to(jnp.eye(3, dtype=M.dtype) if tensors.ndim == 3 else 1.0, tensors.shape)
    masses = jnp.where(replaced, 1.0, masses)
    tensors = jnp.where(replaced.reshape(-1, *[1] * (tensors.ndim - 1)), unit, tensors)
    return at.placement.inertia(jax.vmap(at.space.inertia)(masses, tensors)), ~is_singular | is_determined


def _lacks_inertia(masses: Float[Array, " bodies"], tensors: Array) -> Bool[Array, " bodies"]:
    """Return True for each body without mass, or without a moment of inertia about some axis; False for NaN.

    Nothing takes the place of negative numbers, which no body has: speeds are NaN if `M` is not positive definite then.
    """
    if tensors.ndim == 1:
        return (masses == 0) | (tensors == 0)
    moments = jnp.linalg.eigvalsh(tensors)
    return (masses == 0) | (jnp.abs(moments[:, 0]) <= _THIN * moments[:, -1])


def _is_regular(M: Float[Array, "nv nv"]) -> Bool[Array, ""]:
    return jnp.linalg.eigvalsh(_scaled(M, jnp))[0] > _REGULAR


def _scaled(M: Any, lib: Any) -> Any:
    scale = lib.sqrt(lib.maximum(lib.diag(M), 0.0))
    weight = lib.where(scale > _NOTHING * lib.max(scale), 1 / lib.where(scale > 0, scale, 1.0), 0.0)
    return weight[:, None] * M * weight[None, :]


def check_mass(mechanism: Mechanism, q: Float[Array, " nq"], t: Scalar, what: str) -> None:
    """Raise if `M` is known to be singular, and name the bodies that lack mass and the speeds without inertia.

    `what`: the analysis that needs it.
    """
    mechanism, q, t = frozen((mechanism, q, t))
    thin = [body.name for body in mechanism.bodies if body.lacks_inertia]
    if not thin or not is_concrete(q, t, mechanism) or not np.isfinite(np.asarray(q)).all():
        return
    values, directions = np.linalg.eigh(_scaled(np.asarray(_mass(mechanism, q, t)), np))
    if values[0] > _REGULAR:
        return
    share = np.abs(directions[:, 0])
    speeds = [name for name, part in zip(mechanism.speed_names, share, strict=True) if part > _SHARE * share.max()]
    raise MechanismError(
        f"{what} needs the masses: the mass matrix is singular, nothing has inertia along "
        f"{', '.join(map(repr, speeds))}, since {', '.join(map(_lack_of, (mechanism[name] for name in thin)))}. Give "
        "each a mass and a moment of inertia about every axis (where a body can spin freely about an axis and does "
        "not, any one will do), or take coordinates='joint' and joints that leave no motion without inertia. "
        "Positions, and the kinematics of a mechanism that its drivers move completely, need none."
    )


def _lack_of(body: Any) -> str:
    missing = "no mass" if not np.asarray(body.mass) > 0 else "no inertia about an axis"
    return f"{body.name!r} has {missing}"


@cached_on_disk
def _mass(mechanism: Mechanism, q: Array, t: Array) -> Array:
    return jnp.asarray(Equations(mechanism).mass(q, t))
