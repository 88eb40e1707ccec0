"""Planar mechanisms with flexible beams, whose elements are forces as a user writes them.

The nodes of a beam are bodies at the Gauss-Lobatto points of its elements, with the mass and the rotary inertia of
their parts of the beam. Between them positions and angles are polynomials; an element's strains at Gauss points are
`Γ = Rᵀ r' − (1, 0)` and `κ = θ'`. Stiff in stretching and shear, such beams ask for implicit steps.

Source: Simo, *A finite strain beam formulation* (1985); Reissner's beam in the plane.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import Legendre, Polynomial

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.extend import AbstractForce, AbstractMarker, Scalar, as_float

DEGREE = 4  # of the polynomials: an element has one node more


class Points(NamedTuple):
    """The nodes of an element on `−1 ≤ ξ ≤ 1` with their weights, and its Gauss points: the values and the slopes of
    the nodes' Lagrange polynomials there, and the points' weights."""

    nodes: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    gauss: np.ndarray


@cache
def points() -> Points:
    """The points of an element."""
    legendre = Legendre.basis(DEGREE)
    nodes: np.ndarray = np.array([-1.0, *np.sort(np.real(legendre.deriv().roots())), 1.0])
    weights = 2.0 / (DEGREE * (DEGREE + 1) * legendre(nodes) ** 2)
    xi, gauss = np.polynomial.legendre.leggauss(DEGREE)
    lagrange = [Polynomial(c) for c in np.linalg.inv(np.vander(nodes, increasing=True)).T]
    values = np.stack([p(xi) for p in lagrange], axis=1)
    return Points(nodes, weights, values, np.stack([p.deriv()(xi) for p in lagrange], axis=1), gauss)


class BeamElement(AbstractForce):
    """An element of a beam. `stiffness`: in stretching [N], in shear [N] and in bending [N m²]; `length` [m]."""

    name: str = eqx.field(static=True)
    nodes: tuple[AbstractMarker, ...]
    stiffness: Float[Array, "3"]
    length: Scalar = eqx.field(converter=as_float)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.nodes

    def energy(self, position: Float[Array, "nodes 2"], angle: Float[Array, " nodes"]) -> Scalar:
        """The strain energy [J]."""
        at = points()
        turn, bend, slope = at.values @ angle, *(2.0 / self.length * (at.slopes @ x) for x in (angle, position))
        cos, sin = jnp.cos(turn), jnp.sin(turn)
        stretch = cos * slope[:, 0] + sin * slope[:, 1] - 1.0
        shear = cos * slope[:, 1] - sin * slope[:, 0]
        strains = jnp.stack([stretch, shear, bend])
        return 0.25 * self.length * jnp.sum(self.stiffness @ strains**2 * at.gauss)

    def wrenches(self, t: Scalar, frames: Any, rates: Any) -> Array:
        forces, moments = jax.grad(self.energy, (0, 1))(*_places(frames))
        return -jnp.concatenate([forces, moments[:, None]], axis=1)

    def potential(self, t: Scalar, frames: Any) -> Scalar:
        return self.energy(*_places(frames))


def _places(frames: Sequence[Any]) -> tuple[Array, Array]:
    return jnp.stack([f.position for f in frames]), jnp.stack([f.angle for f in frames])


class Section(NamedTuple):
    """A section of a beam: Young's modulus [Pa], Poisson's ratio, area [m²], second moment [m⁴], density [kg/m³] and
    the shear coefficient."""

    young: float
    poisson: float
    area: float
    moment: float
    density: float
    shear: float

    @property
    def stiffness(self) -> Array:
        in_shear = self.shear * self.area / (2.0 * (1.0 + self.poisson))
        return self.young * jnp.asarray([self.area, in_shear, self.moment])


def beam(section: Section, length: float, elements: int) -> tuple[list[pl.Body], list[BeamElement], np.ndarray]:
    """The nodes of a beam, its elements, and where the nodes are along it [m]."""
    at, size = points(), length / elements
    places, shares = (np.zeros(elements * DEGREE + 1) for _ in range(2))
    for k in range(elements):
        own = slice(k * DEGREE, (k + 1) * DEGREE + 1)
        places[own] = size * (k + 0.5 * (at.nodes + 1.0))
        shares[own] += 0.5 * size * at.weights
    per_length = section.density * section.area, section.density * section.moment
    nodes = [pl.Body(f"n{k}", *(float(x * share) for x in per_length)) for k, share in enumerate(shares)]
    laws = [
        BeamElement(f"e{k}", tuple(n.at() for n in nodes[k * DEGREE :][: DEGREE + 1]), section.stiffness, size)
        for k in range(elements)
    ]
    return nodes, laws, places


def _straight(places: np.ndarray, start: float) -> dict[str, float]:
    """Coordinates of nodes on the x axis."""
    on_axis = {f"n{k}.x": start + float(x) for k, x in enumerate(places)}
    return on_axis | {f"n{k}.{name}": 0.0 for k in range(len(places)) for name in ("y", "theta")}


def pendulum(elements: int) -> tuple[pl.Mechanism, mbd.State]:
    """A rubber pendulum of 1.2 m that falls from the horizontal, at rest (Escalona, Hussien, Shabana, 1998)."""
    section = Section(7e6, 0.3, 0.0018, 1.215e-8, 5540.0, 10 * 1.3 / (12 + 11 * 0.3))
    nodes, laws, places = beam(section, 1.2, elements)
    pin = pl.Revolute("O", pl.ground.at(), nodes[0].at())
    made = pl.Mechanism(nodes, [pin], [pl.Gravity(9.81), *laws], coordinates="absolute", floating=True)
    free = {name: x for name, x in _straight(places, 0.0).items() if name not in ("n0.x", "n0.y")}
    return made, mbd.assemble(made, free)


def stiffened(mechanism: pl.Mechanism, share: Any) -> pl.Mechanism:
    """A mechanism whose beams have a share of their stiffness."""
    of: Callable[[Any], Any] = lambda m: [law.stiffness for law in m.forces if isinstance(law, BeamElement)]  # noqa: E731
    return eqx.tree_at(of, mechanism, [share * x for x in of(mechanism)])


CRANK, ROD, SPEED = 0.15, 0.3, 150.0  # m, m, rad/s


def run_up(t: Scalar) -> Scalar:
    """The angle of a crank that reaches its speed smoothly after half a turn."""
    end = 2.0 * np.pi / SPEED
    x = jnp.clip(t / end, 0.0, 1.0)
    return SPEED * (end * x**4 * (2.5 - 3.0 * x + x**2) + jnp.maximum(t - end, 0.0))


def slider_crank(elements: int) -> tuple[pl.Mechanism, mbd.State]:
    """A slider-crank with a thin steel rod at 150 rad/s (Koppens, 1989; Meijaard, 1991)."""
    d, nu = 0.006, 0.3
    section = Section(2e11, nu, np.pi * d**2 / 4, np.pi * d**4 / 64, 7870.0, 6 * (1 + nu) / (7 + 6 * nu))
    nodes, laws, places = beam(section, ROD, elements)
    crank, slider = pl.Body("crank", 1.0, 0.01), pl.Body("slider", 0.5 * section.density * section.area * ROD, 1e-5)
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at()),
        pl.Revolute("A", crank.at(CRANK, 0.0), nodes[0].at()),
        pl.Revolute("B", nodes[-1].at(), slider.at()),
        pl.Prismatic("rail", pl.ground.at(), slider.at()),
    ]
    bodies, motor = [crank, *nodes, slider], pl.Driver("motor", "O.angle", run_up)
    made = pl.Mechanism(bodies, joints, laws, [motor], coordinates="absolute", floating=True)
    straight = _straight(places, CRANK)
    held = {"n0.x", "n0.y", f"n{len(nodes) - 1}.y"}
    free = {name: x for name, x in straight.items() if name not in held}
    return made, mbd.assemble(made, free, guess=straight | {"slider.x": CRANK + ROD})


def deflection(motion: mbd.Solution) -> Array:
    """How far the middle of the slider-crank's rod is to the left of the line between its ends [m]."""
    last = sum(body.name.startswith("n") for body in motion.mechanism.bodies) - 1
    ends = [jnp.stack([motion[f"n{k}.x"], motion[f"n{k}.y"]]) for k in (0, last // 2, last)]
    along, middle = ends[2] - ends[0], ends[1] - ends[0]
    return (along[0] * middle[1] - along[1] * middle[0]) / jnp.linalg.norm(along, axis=0)
