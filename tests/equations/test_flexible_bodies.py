"""Bodies with coordinates of their own: the identities of the change of variables, and a kind that is two rigid bodies.

The kind is a user's, in space; the beam is that of the library.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.flexible_bodies import crank, screws

COORDINATES = ("absolute", "joint")
STEP = 1e-5  # [s] of central differences
SLOPES, CURVATURES = 1e-7, 1e-4  # their errors, relative to a largest value of one or more


def moving(mechanism: Any) -> tuple[Any, Any, Any, Any]:
    """The equations at a position off its constraints, with two vectors of speeds."""
    draws = np.random.default_rng(1)
    state = mbd.assemble(mechanism)
    q = state.q + 0.01 * draws.normal(size=mechanism.nq)
    v, u = (jnp.asarray(draws.normal(size=mechanism.nv)) for _ in range(2))
    return mbd.Equations(mechanism), q, v, u


def close(given: Any, expected: Any, tolerance: float = SLOPES) -> None:
    np.testing.assert_allclose(given, expected, atol=tolerance * max(1.0, np.abs(expected).max(initial=0.0)))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("build", [crank, lambda c: screws(c, "own", 0.01)], ids=["beam", "screw"])
def test_rates_and_loads_are_derivatives_and_transposes(build: Any, coordinates: str) -> None:
    equations, q, v, u = moving(build(coordinates))
    t, draws = jnp.zeros(()), np.random.default_rng(2)

    @mbd.extend.as_program
    def all_of(s: Any) -> dict[str, Any]:
        at = equations.at(t + s, equations.at(t, q).advanced(v, s))
        efforts = jnp.asarray(draws.normal(size=at.twists(v).shape))
        lam = jnp.asarray(draws.normal(size=equations.m))
        return {
            "position": at.bodies.frames.position, "V": at.twists(v + s * u), "J u": at.twists(u), "phi": at.position(),
            "load": at.placement.loads(efforts), "M u": at.inertia.times(u), "C lam": at.constraint_force(lam),
            "rates": {
                "V": at.accelerations(v, u), "J u": at.placement.twist_rate(v, u), "phi": at.times(v),
                "load": at.placement.loads_rate(v, efforts), "M u": at.inertia_rate(v, u),
                "C lam": at.constraint_force_rate(v, lam),
            },
            "gamma": at.gamma(v), "power": jnp.sum(efforts * at.twists(u)),
            "M": at.inertia.matrix(), "C": at.jacobian, "S": at.schur().matrix(), "lam": lam,
        }  # fmt: skip

    before, now, after = (all_of(jnp.asarray(s)) for s in (-STEP, 0.0, STEP))
    slope = lambda name: (after[name] - before[name]) / (2 * STEP)  # noqa: E731
    linear = now["V"][:, : now["position"].shape[1]]
    close(slope("position")[:-1], linear)
    for name in ("V", "J u", "phi", "load", "M u", "C lam"):
        close(slope(name), now["rates"][name])
    close((after["phi"] - 2 * now["phi"] + before["phi"]) / STEP**2, -now["gamma"], CURVATURES)
    close(now["power"], now["load"] @ u, 1e-13)
    M, C = now["M"], now["C"]
    close(M, jax.jit(jax.hessian(lambda v: equations.at(t, q).kinetic_energy(v)))(v), 1e-12)
    close(now["S"], C @ jnp.linalg.solve(M, C.T), 1e-9)
    close(now["C lam"], C.T @ now["lam"], 1e-12)
    assert float(jnp.linalg.eigvalsh(M)[0]) > 0


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_forces_do_the_work_that_energies_lose(coordinates: str) -> None:
    """`v·F = −V̇ − ½ v·Ṁ v − d ḃ²`: inertia forces of own coordinates, strain and gravity among them."""
    for mechanism in (crank(coordinates), crank(coordinates, damping=1e-3)):
        _, q, v, _ = moving(mechanism)
        rod = mechanism["rod"]
        close(_lost(mechanism, q, v), -2 * rod.damping * rod.strain_energy(v[-3:]), 1e-9)


@eqx.filter_jit
def _lost(mechanism: Any, q: Array, v: Array) -> Array:
    """The power of the forces and what the energies take of it."""
    equations = mbd.Equations(mechanism)
    at = equations.at(jnp.zeros(()), q)
    potential = lambda s: equations.at(at.t, at.advanced(v, s)).potential_energy()  # noqa: E731
    return jax.grad(potential)(0.0) + 0.5 * v @ at.inertia_rate(v, v) + v @ at.force(v)


READ = ("case.position", "case.acceleration", "case.alpha_world", "p", "velocity", "acceleration", "kinetic_energy",
        "potential_energy", *(f"O.{load}" for load in ("fx", "fy", "fz", "mx", "my", "mz")))  # fmt: skip


@pytest.mark.parametrize("rotor", [0.0, 0.02])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_a_body_with_a_moving_part_is_two_rigid_bodies(coordinates: str, rotor: float) -> None:
    """The same motion, loads and energies; its coordinate is that of the screw, and `rotor` its armature."""
    one, two = screws(coordinates, "own", rotor), screws("joint", "rigid", rotor)
    spin = {"case.omega_x": 2.0, "case.omega_y": -1.5, "case.omega_z": 3.0}
    turned = {"case.roll": 0.4, "case.pitch": 0.3, "case.yaw": -0.2}
    a = mbd.assemble(one, turned | {"case.turn": 0.5}, speeds=spin | {"case.turn": 1.7})
    b = mbd.assemble(two, turned | {"R.angle": 0.5}, speeds=spin | {"R.angle": 1.7})
    found, expected = mbd.read(one, a, [*READ, "case.turn", "case.turn_rate"]), mbd.read(two, b, [*READ, "R.angle"])
    for name in READ:
        close(found[name], expected[name], 1e-9)
    close(found["case.turn"], expected["R.angle"], 1e-9)
    close(found["case.turn_rate"], 1.7, 1e-9)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_reactions_are_those_of_both_kinds_of_coordinates(coordinates: str) -> None:
    """Multipliers in absolute coordinates, the balance of the body's pieces in joint ones."""
    fixed = {"O.angle": 0.6, "rod.deflection": 0.01, "rod.slope": 0.05, "rod.bending1": 0.002}
    speeds = {"O.angle": 20.0, "rod.deflection": 0.1, "rod.slope": 0.3, "rod.bending1": -0.2}
    mechanism = crank(coordinates)
    names = [f"{joint}.{load}" for joint in "OABP" for load in ("fx", "fy", "moment")]
    values = mbd.read(mechanism, mbd.assemble(mechanism, fixed, speeds=speeds), [*names, "rod.acceleration", "middle"])
    other = crank("joint" if coordinates == "absolute" else "absolute")
    expected = mbd.read(other, mbd.assemble(other, fixed, speeds=speeds), list(values))
    for name, value in values.items():
        close(value, expected[name], 1e-8)


def test_generalized_speeds_are_a_further_change_of_variables() -> None:
    plain = crank("joint")
    A = np.random.default_rng(3).normal(size=(plain.nv, plain.nv)) + 3 * np.eye(plain.nv)
    names = [f"u{k}" for k in range(plain.nv)]
    own = plain.with_coordinates("joint", speeds=pl.GeneralizedSpeeds(names, lambda t, q, p, A: A @ p, jnp.asarray(A)))
    q = mbd.assemble(plain).q
    p = np.linspace(-1, 1, plain.nv)
    close(mbd.Equations(own).mass(q, 0.0), A.T @ mbd.Equations(plain).mass(q) @ A, 1e-12)
    t = jnp.zeros(())
    close(mbd.Equations(own).force(t, q, p), A.T @ mbd.Equations(plain).force(t, q, A @ p), 1e-10)
