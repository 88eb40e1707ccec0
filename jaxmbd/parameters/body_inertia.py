"""Mass, centre of mass and inertia of a body as free parameters, such that every trial value is that of some body.

Some distribution of positive mass has the mass `m`, the centre `c` and the inertia `J` about it if the pseudo-inertia
matrix `[[Σ + m c cᵀ, m c], [m cᵀ, m]]` is positive definite, where `Σ = ∫ x xᵀ dm = ½ tr(J) 1 − J` about the centre:
if `m > 0` and `Σ` is positive definite, wherever the centre is. The search works on the logarithms of the diagonal and
the other entries of the Cholesky factor of `Σ`.

Sources: Wensing, Kim and Slotine, IEEE Robotics and Automation Letters 3 (2018); Rucker and Wensing, ibid. 7 (2022).
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, as_float, is_concrete
from jaxmbd.checks import check_instance, check_number
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractBody, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.flexible import AbstractFlexibleBody
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Parameter
from jaxmbd.parameters.places import COLUMNS, ROWS, AbstractPlace, packed, unpacked
from jaxmbd.parameters.priors import AbstractPrior, LogNormal, Normal, standard
from jaxmbd.parameters.ranges import WIDTH, AbstractRange, Positive, Unbounded, everything

_WEIGHTS = np.sqrt([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])  # the others stand for two entries of the matrix
_FLAT = 1e-6  # share of the largest second moment of mass: with a smaller one the estimate counts as flat


def body_inertia(body: AbstractBody, deviation: float | None = None) -> dict[str, Parameter]:
    """The mass, the centre of mass and the inertia of a body as free parameters, `"rod.mass"`, `"rod.centre"`,
    `"rod.inertia"`; every value that a fit tries is physically possible.

        free = {**body_inertia(mechanism["rod"]), "stiffness": "spring.stiffness"}

    The centre `(x, y)` or `(x, y, z)` [m] is that of the estimated body in the frame of the modelled one, whose origin
    is the modelled centre: zero to begin with. All markers of the body keep their places in that frame; numbers
    that refer to the body's origin, such as the coordinates `rod.x` of an initial state, then refer to the estimated
    centre. The inertia [kg m²] is that about the centre of mass: one number in the plane; in space, in the modelled
    axes, `xx, yy, zz, xy, xz, yz`, in which the last three are entries of the matrix (negative products of inertia).

    Measurements of a motion hardly ever determine all of these numbers; `deviation` adds priors at the modelled values:
    0.1 means that mass and inertia are known to about 10 %, and the centre to 10 % of the radius of gyration.

    **Raises:** `MechanismError` if the body has no extension in some direction (a point, a rod, a lamina in space):
    then leave the inertia out, or give it some thickness.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> free = mbd.identification.body_inertia(pendulum["rod"], deviation=0.2)
        >>> list(free)
        ['rod.mass', 'rod.centre', 'rod.inertia']
    """
    check_instance("body_inertia: body", body, AbstractBody, "a body, mechanism['rod']")
    check_instance("body_inertia: body", body.name, str, "a body, mechanism['rod']")
    if isinstance(body, AbstractFlexibleBody):
        raise MechanismError(
            f"body_inertia: {body.name!r} is flexible, and its inertia is that of its pieces. Free numbers of its own, "
            f"such as {body.name + '.mass'!r}."
        )
    if not is_concrete(body.mass, body.inertia):
        raise MechanismError(f"body_inertia: mass and inertia of {body.name!r} must be known numbers.")
    name, is_planar = body.name, body.space.dim == 2
    J = np.asarray(body.inertia) if is_planar else np.asarray(packed(body.inertia))
    within = Positive() if is_planar else ConsistentInertia()
    if not within.contains(J):
        raise MechanismError(
            f"body_inertia: {name!r} has no extension in some direction, inertia {J} kg m²; any small change of it "
            "may be impossible. Give it some thickness, or free its mass alone: lambda m: m[...].mass."
        )
    gyration = float(np.sqrt(np.max(J) / float(body.mass)))
    centre_prior = mass_prior = inertia_prior = None
    if deviation is not None:
        check_number("body_inertia", "deviation", as_float(deviation), "1")
        mass_prior, centre_prior = LogNormal(body.mass, deviation), Normal(0.0, deviation * gyration)
        inertia_prior = LogNormal(J, deviation) if is_planar else NearInertia(J, deviation)
    return {
        f"{name}.mass": Parameter(f"{name}.mass", None, Positive(), "kg", mass_prior),
        f"{name}.centre": Parameter(CentreOfMass(name), None, Unbounded(gyration), "m", centre_prior),
        f"{name}.inertia": Parameter(f"{name}.inertia", None, within, "kg m²", inertia_prior),
    }


class CentreOfMass(AbstractPlace):
    """The displacement of a body's centre of mass, in the body's frame: its markers move the other way."""

    is_last: ClassVar[bool] = True  # so that free positions of markers are those in the modelled frame, too
    components: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    body: str = eqx.field(static=True)

    def value(self, part: str, mechanism: Mechanism) -> Array:
        return jnp.zeros(mechanism.space.dim, _body(part, mechanism, self.body).mass.dtype)

    def replaced(self, mechanism: Mechanism, value: Array) -> Mechanism:
        def moved(node: PyTree) -> PyTree:
            if not isinstance(node, AbstractMarker) or node.body != self.body:
                return node
            if isinstance(node, AbstractMovingMarker):
                return eqx.tree_at(lambda m: m.motion, node, _Displaced(node.motion, -value))
            return eqx.tree_at(lambda m: m.position, node, node.position - value)

        return jax.tree.map(moved, mechanism, is_leaf=lambda x: isinstance(x, AbstractMarker))


class _Displaced(eqx.Module):
    """A motion with a constant displacement."""

    motion: Function
    by: Array

    def __call__(self, t: Array) -> Array:
        return jnp.asarray(self.motion(t)) + self.by


class ConsistentInertia(AbstractRange):
    """Inertias `(xx, yy, zz, xy, xz, yz)` of bodies with an extension in all directions, by the Cholesky factor of
    their second moments of mass."""

    def physical(self, u: Array, start: Array) -> Array:
        L = jnp.diag(jnp.exp(u[:3])).at[COLUMNS[3:], ROWS[3:]].set(u[3:])
        sigma = _size(start) * L @ L.T
        return packed(jnp.trace(sigma) * jnp.eye(3, dtype=u.dtype) - sigma)

    def unconstrained(self, value: Array, start: Array) -> Array:
        L = jnp.linalg.cholesky(_second_moments(value) / _size(start))
        return jnp.concatenate([jnp.log(jnp.diag(L)), L[COLUMNS[3:], ROWS[3:]]])

    def slopes(self, u: Array, start: Array) -> Array:
        return jax.jacfwd(lambda u: self.physical(u, start))(u)

    def bounds(self, start: Array) -> tuple[Array, Array]:
        return everything(start)

    def moved(self, value: Array, change: Array, start: Array) -> Array:
        moments = value[:3] * jnp.exp(change[:3] / value[:3])  # each alone is any positive number, a product any number
        return jnp.concatenate([moments, value[3:] + change[3:]])

    def contains(self, value: np.ndarray) -> bool:
        return value.shape == (6,) and bool(np.isfinite(value).all()) and _thickness(value) > 1e-9

    def size(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        return np.full_like(value, np.max(value[:3]))

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        u = np.asarray(self.unconstrained(jnp.asarray(start), jnp.asarray(start)))
        return np.asarray(self.physical(jnp.asarray(u + WIDTH * draws.standard_normal(6)), jnp.asarray(start)))

    def remarks(
        self, name: str, labels: list[str], values: np.ndarray, starts: np.ndarray, errors: np.ndarray
    ) -> list[str]:
        if _thickness(values) > _FLAT * min(1.0, _thickness(starts)):
            return []
        return [f"{name} runs to that of a flat body, the edge of what is possible"]


class NearInertia(AbstractPrior):
    """Inertias near a known one: with `Σ₀ = L Lᵀ` the entries of `L⁻¹ Σ L⁻ᵀ` are normally distributed about those of
    the identity, the diagonal with the standard deviation `deviation`, the others with `deviation / √2`: the sum of
    squares is then a norm of the matrix, the same in all axes and for bodies of any size."""

    known: Float[Array, "6"] = eqx.field(converter=as_float)
    deviation: Array = eqx.field(converter=as_float)

    def residual(self, value: Array) -> Array:
        L = jnp.linalg.cholesky(_second_moments(self.known))
        half = jax.scipy.linalg.solve_triangular(L, _second_moments(value), lower=True)
        whole = jax.scipy.linalg.solve_triangular(L, half.T, lower=True)
        return (whole - jnp.eye(3, dtype=value.dtype))[ROWS, COLUMNS] * _WEIGHTS.astype(value.dtype) / self.deviation

    def log_density(self, value: Array) -> Array:
        volume = jnp.linalg.slogdet(jax.jacfwd(self.residual)(value))[1]
        return standard(self.residual(value)) + volume / value.size

    def drawn(self, start: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        L = np.linalg.cholesky(np.asarray(_second_moments(self.known)))
        x = draws.standard_normal(6) * np.asarray(self.deviation) / _WEIGHTS
        sigma = L @ (np.eye(3) + np.asarray(unpacked(jnp.asarray(x)))) @ L.T
        return np.asarray(packed(jnp.asarray(np.trace(sigma) * np.eye(3) - sigma)))


def _body(part: str, mechanism: Mechanism, name: str) -> AbstractBody:
    body = mechanism[name]
    check_instance(f"{part}: {name!r}", body, AbstractBody, "a body of the mechanism")
    return body


def _second_moments(value: Array) -> Array:
    """`Σ = ½ tr(J) 1 − J`."""
    return jnp.sum(value[:3]) / 2 * jnp.eye(3, dtype=value.dtype) - unpacked(value)


def _size(value: Array) -> Array:
    """The mean of the three second moments of mass."""
    return jnp.sum(value[:3]) / 6


def _thickness(value: np.ndarray) -> float:
    """The smallest principal second moment of mass divided by the largest; not positive if no body has the inertia."""
    moments = np.linalg.eigvalsh(np.asarray(_second_moments(jnp.asarray(value))))
    return float(moments[0] / moments[2]) if moments[2] > 0 else -1.0
