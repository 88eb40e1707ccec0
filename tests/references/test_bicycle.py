"""The bicycle of Whipple against the published eigenvalues, and its derivatives against the closed formulas.

Source: Meijaard, Papadopoulos, Ruina, Schwab, *Linearized dynamics equations for the balance and steer of a bicycle:
a benchmark and review*, Proc. R. Soc. A 463 (2007), appendices A and B, table 2.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd import examples

SPEED, RADIUS = 5.0, 0.35  # [m/s, m]
PUBLISHED = [-0.32286642900409, -0.77534188219585 + 4.46486771378823j, -14.07838969279822]
BENCHMARK = {
    "w": 1.02, "c": 0.08, "tilt": math.pi / 10, "rR": 0.3, "mR": 2.0, "Rxx": 0.0603, "Ryy": 0.12, "mF": 3.0,
    "rF": RADIUS, "xF": 1.02, "zF": -RADIUS, "Fxx": 0.1405, "Fyy": 0.28,
    "mB": 85.0, "xB": 0.3, "zB": -0.9, "Bxx": 9.2, "Bzz": 2.8, "Bxz": 2.4,
    "mH": 4.0, "xH": 0.9, "zH": -0.7, "Hxx": 0.05892, "Hzz": 0.00708, "Hxz": -0.00756,
}  # fmt: skip


def matrices(p: dict[str, float]) -> tuple[np.ndarray, ...]:
    """`M`, `C₁`, `K₀`, `K₂` of `M q̈ + v C₁ q̇ + (g K₀ + v² K₂) q = 0`, q the lean and the steer angle; z points down.

    The place of the front wheel's centre, `(xF, zF)`, and the radius `rF` are numbers of their own.
    """
    w, c, sine, cosine = p["w"], p["c"], math.sin(p["tilt"]), math.cos(p["tilt"])
    bodies = {"R": (p["mR"], 0.0, -p["rR"])} | {n: (p[f"m{n}"], p[f"x{n}"], p[f"z{n}"]) for n in "BHF"}
    own = {"R": (p["Rxx"], 0.0, p["Rxx"]), "F": (p["Fxx"], 0.0, p["Fxx"])}
    own |= {n: (p[f"{n}xx"], p[f"{n}xz"], p[f"{n}zz"]) for n in "BH"}

    def together(names: str, at_contact: bool) -> tuple[Any, ...]:
        """Mass, place of the centre of mass, and moments xx, xz, zz about the rear contact or that centre."""
        m, x, z = (np.array([bodies[n][k] for n in names]) for k in range(3))
        centre = m @ x / m.sum(), m @ z / m.sum()
        X, Z = (x, z) if at_contact else (x - centre[0], z - centre[1])
        xx, xz, zz = (sum(own[n][k] for n in names) for k in range(3))
        return m.sum(), *centre, xx + m @ Z**2, xz - m @ (X * Z), zz + m @ X**2

    mT, xT, zT, Txx, Txz, Tzz = together("RBHF", True)
    mA, xA, zA, Axx, Axz, Azz = together("HF", False)
    u = (xA - w - c) * cosine - zA * sine
    All = mA * u**2 + Axx * sine**2 + 2 * Axz * sine * cosine + Azz * cosine**2
    Alx, Alz = -mA * u * zA + Axx * sine + Axz * cosine, mA * u * xA + Axz * sine + Azz * cosine
    mu, front = c / w * cosine, p["Fyy"] / p["rF"]
    wheels, S = p["Ryy"] / p["rR"] + front, mA * u + c / w * cosine * mT * xT
    M = [[Txx, Alx + mu * Txz], [Alx + mu * Txz, All + 2 * mu * Alz + mu**2 * Tzz]]
    upper = mu * wheels + front * cosine
    lower = Alz / w * cosine + mu * (S + Tzz / w * cosine)
    C1 = [[0.0, upper + Txz / w * cosine - mu * mT * zT], [-upper, lower]]
    K0 = [[mT * zT, -S], [-S, -S * sine]]
    K2 = [[0.0, (wheels - mT * zT) / w * cosine], [0.0, (S + front * sine) / w * cosine]]
    return tuple(np.asarray(x) for x in (M, C1, K0, K2))


def formula(p: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, smallest first, and the lean and steer angles of their modes."""
    M, C1, K0, K2 = matrices(p)
    lower = -np.linalg.solve(M, np.hstack([9.81 * K0 + SPEED**2 * K2, SPEED * C1]))
    values, vectors = (np.asarray(x) for x in np.linalg.eig(np.vstack([np.eye(2, 4, 2), lower])))
    order = np.lexsort((-np.imag(values), np.abs(values).round(9)))
    return values[order], vectors[:2, order]


def redesigned(radius: float) -> dict[str, float]:
    """The wheel's centre rises with the radius; all else of the geometry stays."""
    return BENCHMARK | {"rF": radius, "zF": -radius}


def retyred(radius: float) -> dict[str, float]:
    """The same parts with another tyre: the bicycle pitches about its rear hub until the front one has risen.

    So tilt and trail change with it, and wheel base and places of the centres of mass.
    """
    p = BENCHMARK
    front = np.array([p["w"], p["rR"] - RADIUS])  # from the rear hub, z down
    rise = math.asin((radius - p["rR"]) / math.hypot(*front)) - math.atan2(-front[1], front[0])
    turn = np.array([[math.cos(rise), math.sin(rise)], [-math.sin(rise), math.cos(rise)]])
    moved = {"rF": radius, "tilt": p["tilt"] + rise}
    for n in "BHF":
        moved[f"x{n}"], moved[f"z{n}"] = turn @ np.array([p[f"x{n}"], p[f"z{n}"] + p["rR"]]) - np.array([0.0, p["rR"]])
    for n in "BH":
        inertia = turn @ np.array([[p[f"{n}xx"], p[f"{n}xz"]], [p[f"{n}xz"], p[f"{n}zz"]]]) @ turn.T
        moved |= {f"{n}xx": inertia[0, 0], f"{n}xz": inertia[0, 1], f"{n}zz": inertia[1, 1]}
    offset = RADIUS * math.sin(p["tilt"]) - p["c"] * math.cos(p["tilt"])  # of the hub from the steering axis
    trail = (radius * math.sin(moved["tilt"]) - offset) / math.cos(moved["tilt"])
    return p | moved | {"w": moved["xF"], "c": trail}


def slope(values: list[complex], h: float) -> complex:
    """The derivative by differences of values at −2h, −h, h, 2h."""
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)


@pytest.mark.slow
def test_the_published_eigenvalues_and_their_modes() -> None:
    """At 5 m/s; each mode has the ratio of lean to steer that the formulas give it, and leaves frame.x alone."""
    example = examples.get("bicycle")
    system = mbd.linearize(example.mechanism, example.state())
    modes, (values, shapes) = system.modes(), formula(BENCHMARK)
    np.testing.assert_allclose(system.eigenvalues[:6], np.zeros(6), atol=1e-9)
    np.testing.assert_allclose(modes.eigenvalues[-3:], PUBLISHED, rtol=1e-10)
    np.testing.assert_allclose(values[[0, 1, 3]], PUBLISHED, rtol=1e-10)
    assert bool(modes.accurate.all())
    assert system.speeds == ("frame.vx", "frame.vy", "steer.angle_rate")
    moving = [system.coordinates.index(name) for name in ("frame.x", "frame.y", "steer.angle")]
    states = np.concatenate([modes.reduced, modes.reduced[np.asarray(moving)] * modes.eigenvalues[None]])[:, -3:]
    np.testing.assert_allclose(np.asarray(system.A) @ states, states * np.asarray(PUBLISHED), atol=1e-9)
    lean, steer, x = (modes.names.index(name) for name in ("∫frame.omega_x", "steer.angle", "frame.x"))
    ratio = modes.reduced[lean, -3:] / -modes.reduced[steer, -3:]  # z is up, and so the steer angle of the other sign
    np.testing.assert_allclose(ratio, (shapes[0] / shapes[1])[[0, 1, 3]], rtol=1e-8)
    np.testing.assert_allclose(modes.shares[x, -3:], np.zeros(3), atol=1e-12)


@pytest.mark.slow
def test_derivatives_by_the_radius_of_the_front_wheel() -> None:
    """Of −14.08: another radius of the rolling alone, −34.4546 1/(m s); of the design that keeps its trail, −8.3384."""

    def changed(radius: Array, tyre: Array) -> examples.Example:
        example = examples.bicycle(SPEED, radius)
        return eqx.tree_at(lambda e: e.mechanism["front contact"].radius, example, radius + tyre)

    def fastest(radius: Array, tyre: Array, state: mbd.State) -> tuple[Array, Array]:
        value = mbd.linearize(changed(radius, tyre).mechanism, state).eigenvalues[-1].real
        return value, value

    def at(radius: float, tyre: float) -> complex:
        state = changed(jnp.asarray(radius), jnp.asarray(tyre)).state()
        return float(fastest(jnp.asarray(radius), jnp.asarray(tyre), state)[0])

    start, h = examples.bicycle().state(), 1e-3
    found, value = jax.jacfwd(fastest, (0, 1), has_aux=True)(jnp.asarray(RADIUS), jnp.zeros(()), start)
    np.testing.assert_allclose(value, PUBLISHED[-1].real, rtol=1e-10)
    steps = [-2 * h, -h, h, 2 * h]
    differences = [slope([at(RADIUS + s, 0.0) for s in steps], h), slope([at(RADIUS, s) for s in steps], h)]
    closed = [slope([formula(p(RADIUS + s))[0][-1] for s in steps], h) for p in (redesigned, retyred)]
    np.testing.assert_allclose(found, [-8.3384, -34.4546], atol=1e-4)
    np.testing.assert_allclose(found, closed, rtol=1e-7)
    np.testing.assert_allclose(found, differences, rtol=1e-7)
