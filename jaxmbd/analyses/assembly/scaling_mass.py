"""The check that the mass matrix is regular if some bodies have no moment of inertia about an axis."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import is_concrete
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism

_REGULAR = 1e-12  # eigenvalues of the mass matrix, scaled to a unit diagonal, that are smaller count as zero
_NOTHING = 1e-8  # share of the largest root of a diagonal entry of M below which such a root counts as zero
_SHARE = 0.1  # share of the largest component of a direction without inertia from which a speed is named


def check_mass(mechanism: Mechanism, q: Float[Array, " nq"]) -> None:
    """Raise if `M` is known to be singular, and name the speeds that have no inertia.

    Only point masses and thin rods, which have no moment of inertia about some axis, can make it singular.
    """
    thin = [body.name for body in mechanism.bodies if body.lacks_inertia]
    if not thin or not is_concrete(q, mechanism):
        return
    M = np.asarray(_mass(mechanism, q))
    scale = np.sqrt(np.maximum(np.diag(M), 0.0))
    weight = 1 / np.where(scale > _NOTHING * scale.max(), scale, np.inf)
    values, directions = np.linalg.eigh(weight[:, None] * M * weight[None, :])
    if values[0] > _REGULAR:
        return
    share = np.abs(directions[:, 0])
    speeds = [name for name, part in zip(mechanism.speed_names, share, strict=True) if part > _SHARE * share.max()]
    raise MechanismError(
        f"The mass matrix is singular: nothing has inertia along {', '.join(map(repr, speeds))}, since "
        f"{', '.join(map(repr, thin))} {'have' if len(thin) > 1 else 'has'} none about an axis. Give a moment of "
        "inertia about that axis (where the body can spin freely about it and does not, any one will do), or let "
        "joints carry it that leave no such motion free."
    )


@cached_on_disk
def _mass(mechanism: Mechanism, q: Array) -> Array:
    return jnp.asarray(Equations(mechanism).mass(q))
