"""A slender beam in the plane as a flexible body."""

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import Polynomial

from jaxmbd.arrays import Number, Numbers, Scalar, as_float
from jaxmbd.checks import check_count, check_fields, check_finite, check_mapping
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.checks import check_name
from jaxmbd.model.body.flexible import AbstractFlexibleBody
from jaxmbd.model.body.planar import AbstractMarkerOwner
from jaxmbd.space.planar import PLANAR, Frame
from jaxmbd.space.space import AbstractSpace

TIP = "tip"
_MOST = 8  # polynomials: with 8 three frequencies have nine digits; with 12 powers of x cancel to nothing


class Site(AbstractMarkerOwner):
    """A place on a flexible body, which makes markers."""

    name: str = eqx.field(static=True)


class Beam(AbstractMarkerOwner, AbstractFlexibleBody):
    """A slender elastic beam in the plane, along the x axis of its floating frame, which is the frame of its root.

    Its deflection at `x` is `w = d H₁ + s H₂ + Σ bᵢ Pᵢ`: cubics with a deflection `d` and a slope `s` at the tip, and
    polynomials `Pᵢ` that vanish with their slopes at both ends (as in the method of Craig and Bampton). The curve keeps
    its length to second order, `u = −½ ∫ w′² dx`, so that tension, as in a rotating blade, makes the beam stiffer.
    Shear and the rotary inertia of the cross-sections are neglected (Euler and Bernoulli), and slopes are small, up to
    some tenths.

    **Arguments:** `name`; `mass` `[kg]`; `length` `[m]`; `stiffness` `[N m²]` in bending, `E I`; `damping` `[s]`, which
    times the stiffness is that of the bending moment against the rate of curvature; `sites`, further places `x` `[m]`
    to which parts attach, by name, `{"middle": 0.5}`; `bending`, the number of polynomials `Pᵢ`; `pose`, an initial
    guess `(x, y, theta)` `[m, m, rad]` of the root; `eta`, an initial guess of its own coordinates, zero by default.

    Its own coordinates are `"beam.deflection"` `[m]`, `"beam.slope"` `[rad]` and `"beam.bending1"` `[m]`, ... Markers
    at its root are made by `beam.at()`, at its tip and other sites by `beam.site("tip").at()`.

    **Raises:** `MechanismError` if mass, length or stiffness is not positive, or the damping negative, or if the name
    of a site is not valid.

        >>> beam = pl.Beam("beam", mass=0.5, length=1.0, stiffness=20.0)
        >>> clamped = pl.Mechanism([beam], [pl.Weld("wall", pl.ground.at(), beam.at())], [pl.Gravity(9.81)])
        >>> found = mbd.equilibrium(clamped)
        >>> print(f"{found.state['beam.deflection']:.4f} m, {-0.5 * 9.81 / (8 * 20.0):.4f} m")
        -0.0307 m, -0.0307 m
    """

    space: ClassVar[AbstractSpace] = PLANAR
    name: str = eqx.field(static=True)
    mass: Scalar = eqx.field(converter=as_float)
    length: Scalar = eqx.field(converter=as_float)
    stiffness: Scalar = eqx.field(converter=as_float)
    damping: Scalar = eqx.field(converter=as_float)
    sites: dict[str, Scalar]
    bending: int = eqx.field(static=True)
    pose: Float[Array, "3"] = eqx.field(converter=as_float)
    eta: Float[Array, " k"] = eqx.field(converter=as_float)

    def __init__(
        self,
        name: str,
        mass: Number,
        length: Number,
        stiffness: Number,
        damping: Number = 0.0,
        sites: Mapping[str, Number] | None = None,
        bending: int = 2,
        pose: Numbers = (0.0, 0.0, 0.0),
        eta: Numbers | None = None,
    ) -> None:
        check_name("beam", name)
        check_mapping(f"Beam {name!r}: sites", sites, "{'middle': 0.5}")
        check_count(f"Beam {name!r}: bending", bending, 0, _MOST)
        self.name, self.mass, self.length = name, as_float(mass), as_float(length)
        self.stiffness, self.damping = as_float(stiffness), as_float(damping)
        self.sites = {site: as_float(place) for site, place in sorted((sites or {}).items())}
        self.bending, self.pose = int(bending), as_float(pose)
        self.eta = as_float(np.zeros(2 + self.bending) if eta is None else eta)

    def __check_init__(self) -> None:
        part = f"Beam {self.name!r}"
        check_fields(part, self, mass="kg", length="m", stiffness="N m²")
        check_fields(part, self, zero=True, damping="s")
        check_finite(part, "pose", self.pose, (3,))
        check_finite(part, "eta", self.eta, (2 + self.bending,))
        for site, place in self.sites.items():
            check_name("site", site)
            check_finite(part, f"sites: {site!r}", place)
            if site == TIP:
                raise MechanismError(f"{part}: the site {TIP!r} exists, at x = length; name the other one otherwise.")

    def site(self, name: str) -> Site:
        """A site, which makes markers: `beam.site("tip").at()`."""
        if name not in self.site_names:
            raise unknown(f"site of beam {self.name!r}", name, self.site_names)
        return Site(f"{self.name}.{name}")

    @property
    def size(self) -> Scalar:
        return self.length

    @property
    def own_coordinates(self) -> dict[str, str]:
        return {"deflection": "m", "slope": "rad"} | {f"bending{k + 1}": "m" for k in range(self.bending)}

    @property
    def site_names(self) -> tuple[str, ...]:
        return (TIP, *sorted(self.sites))

    @property
    def piece_count(self) -> int:
        return len(_basis(self.bending).points)

    def frames(self, eta: Float[Array, " k"]) -> Frame:
        basis, L = _basis(self.bending), self.length
        sites = jnp.stack([jnp.ones_like(L), *(self.sites[site] / L for site in self.site_names[1:])])
        share = jnp.concatenate([sites, basis.points.astype(L.dtype)])
        lengths = self._lengths(eta)
        powers = jnp.stack([share**k for k in range(basis.shortening.shape[-1])], axis=1)  # (frames, degrees)
        w = powers[:, : basis.shapes.shape[1]] @ (basis.shapes.T @ lengths)
        slope = powers[:, : basis.slopes.shape[1]] @ (basis.slopes.T @ lengths) / L
        shortening = powers @ (lengths @ (lengths @ basis.shortening)) / L
        return jax.vmap(Frame)(jnp.stack([share * L - 0.5 * shortening, w], axis=1), slope)

    def _lengths(self, eta: Float[Array | np.ndarray, " k"]) -> Float[Array, " k"]:
        """The own coordinates as lengths: the slope times the length of the beam."""
        return jnp.concatenate([eta[:1], eta[1:2] * self.length, eta[2:]])

    def pieces(self) -> tuple[Float[Array, " pieces"], Float[Array, " pieces"]]:
        weights = _basis(self.bending).weights.astype(self.mass.dtype)
        return self.mass * weights, jnp.zeros(len(weights), self.mass.dtype)

    def own_inertia(self) -> Float[Array, "k k"]:
        return jnp.zeros((len(self.eta),) * 2, self.mass.dtype)

    def strain_energy(self, eta: Float[Array, " k"]) -> Scalar:
        lengths = self._lengths(eta)
        return 0.5 * self.stiffness / self.length**3 * (lengths @ _basis(self.bending).curvature @ lengths)

    def damping_loads(self, eta: Float[Array, " k"], rates: Float[Array, " k"]) -> Float[Array, " k"]:
        lengths = _basis(self.bending).curvature @ self._lengths(rates)
        return -self.damping * self.stiffness / self.length**3 * self._lengths(lengths)


class _Basis:
    """Functions of `ξ = x/L` for `bending` polynomials: coefficients in powers of `ξ`, lowest first.

    `shapes (k, degrees)` with `w = η shapes(ξ)`; `slopes`, their derivatives; `shortening (k, k, degrees)`, the
    integrals of products of two slopes from the root; `curvature (k, k)`, those of two second derivatives over the
    beam. `points`, `weights`: Gauss's, exact for the kinetic energy of a straight beam that begins to bend.
    """

    def __init__(self, bending: int) -> None:
        x = Polynomial([0.0, 1.0])
        inner = [x**2 * (1 - x) ** 2 * _legendre(k) for k in range(bending)]
        functions = [x**2 * (3 - 2 * x), x**2 * (x - 1), *(16 * p for p in inner)]
        slopes, bends = [p.deriv() for p in functions], [p.deriv(2) for p in functions]
        degree = 4 + bending
        self.shapes = np.stack([_padded(p, degree) for p in functions])
        self.slopes = np.stack([_padded(p, degree - 1) for p in slopes])
        self.shortening = np.stack([np.stack([_padded((p * r).integ(), 2 * degree) for r in slopes]) for p in slopes])
        self.curvature = np.array([[(p * r).integ()(1.0) for r in bends] for p in bends])
        points, weights = np.polynomial.legendre.leggauss(degree + 1)
        self.points, self.weights = 0.5 + 0.5 * points, 0.5 * weights


_basis = lru_cache(maxsize=32)(_Basis)


def _legendre(k: int) -> Polynomial:
    """Legendre's polynomial of degree `k` on `[0, 1]`: a power of `ξ` alone would make the basis nearly dependent."""
    return np.polynomial.Legendre.basis(k, domain=[0, 1]).convert(kind=Polynomial, domain=[-1, 1])


def _padded(p: Polynomial, count: int) -> np.ndarray:
    return np.pad(p.convert(domain=[-1, 1]).coef, (0, count))[:count]
