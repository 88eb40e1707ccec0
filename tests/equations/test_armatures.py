"""Armatures of joints: against explicit rotors that turn with the joints, in both kinds of coordinates."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.errors import MechanismError

SAME = 1e-9  # relative
ARMATURES = {"J1": 0.7, "J2": 1.3, "J3": 0.4}  # kg m², kg, kg m²
FIXED = {"J1.angle": 0.4, "J2.displacement": 0.3}
RATES = {"J1.angle": 1.5, "J2.displacement": -0.6}
READ = (
    *(f"b{k}.{kind}" for k in (1, 2, 3) for kind in ("acceleration", "alpha_world")),
    *(f"J{k}.{load}" for k in (1, 2, 3) for load in ("fx", "fy", "fz", "mx", "my", "mz")),
    "kinetic_energy",
)


def arm(coordinates: str, *, rotors: bool = False, cuts: tuple[str, ...] = ()) -> Any:
    """A chain with skew axes, turning, sliding and turning, whose end a rod ties to the ground.

    `rotors`: the armatures are rotors on the ground that turn with the joints, instead of numbers of these.
    """
    bodies = [sp.Body(f"b{k}", 1.0 + k, np.array([0.02, 0.03, 0.04]) * k) for k in (1, 2, 3)]
    b1, b2, b3 = bodies
    own: dict[str, Any] = dict.fromkeys(ARMATURES) if rotors else ARMATURES
    joints: list[Any] = [
        sp.Revolute("J1", sp.ground.at(0, 0, 1, axis=(0.2, 0.1, 1)), b1.at(-0.2, 0, 0), own["J1"]),
        sp.Prismatic("J2", b1.at(0.2, 0, 0.1, axis=(1, 0.3, 0)), b2.at(0, 0.1, 0, axis=(1, 0, 0.2)), own["J2"]),
        sp.Revolute("J3", b2.at(0.1, 0, 0, axis=(0.3, 1, 0)), b3.at(-0.2, 0, 0, axis=(0, 1, 0)), own["J3"]),
        sp.Rod("rod", b3.at(0.2, 0.1, 0), sp.ground.at(0.5, 0.5, 0.2), 1.0),
    ]
    for name, inertia in ARMATURES.items() if rotors else ():
        rotor = sp.Body(f"{name}_rotor", 1.0, np.array([0.5, 0.5, 1.0]) * inertia)
        bodies.append(rotor)
        joints.append(sp.Revolute(f"{name}_bearing", sp.ground.at(), rotor.at()))
        turned, gear = f"{name}_bearing.angle", f"{name}_gear"
        slides = sp.RackAndPinion(gear, turned, "J2.displacement", 1.0)
        joints.append(slides if name == "J2" else sp.Gear(gear, f"{name}.angle", turned, 1.0))
    forces = [sp.Gravity(), sp.JointForce("motor", "J1.angle", 2.0)]
    return sp.Mechanism(bodies, joints, forces, coordinates=coordinates, cuts=cuts)


def moving(mechanism: Any, *, rotors: bool = False) -> Any:
    """A state away from rest; rotors turn with their joints."""
    turned = {"J1_bearing.angle": 0.4, "J2_bearing.angle": 0.3, "J3_bearing.angle": -0.5} if rotors else {}
    return mbd.assemble(mechanism, FIXED, speeds=RATES, guess={"J3.angle": -0.5, **turned})


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What explicit rotors give."""
    mechanism = arm("joint", rotors=True)
    return mbd.read(mechanism, moving(mechanism, rotors=True), READ)


@pytest.mark.parametrize(("coordinates", "cuts"), [("absolute", ()), ("joint", ()), ("joint", ("J2",))])
def test_motion_reactions_and_energy_are_those_with_rotors(
    coordinates: str, cuts: tuple[str, ...], expected: dict[str, np.ndarray]
) -> None:
    mechanism = arm(coordinates, cuts=cuts)
    values = mbd.read(mechanism, moving(mechanism), READ)
    for name in READ:
        np.testing.assert_allclose(values[name], expected[name], rtol=SAME, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_rate_of_the_mass_matrix(coordinates: str) -> None:
    """`Ṁ u` against the derivative of `M` along the motion: in absolute coordinates it is of the armatures alone."""
    mechanism = arm(coordinates)
    state, equations = moving(mechanism), mbd.Equations(mechanism)
    u = jnp.asarray(np.random.default_rng(0).normal(size=mechanism.nv))

    @jax.jit
    def rates(q: Array, v: Array) -> tuple[Array, Array]:
        at = equations.at(state.t, q)
        moved = lambda s: equations.mass(at.advanced(v, s)) @ u  # noqa: E731
        return at.inertia_rate(v, u), jax.jvp(moved, (jnp.zeros(()),), (jnp.ones(()),))[1]

    found, rate = rates(state.q, state.v)
    assert jnp.max(jnp.abs(rate)) > 0.1
    np.testing.assert_allclose(found, rate, rtol=SAME, atol=1e-10)


def pendulum(coordinates: str, armature: Any) -> Any:
    """A bar of 2 kg and 1 m in the plane."""
    bar = pl.Body("bar", 2.0, 0.1)
    joint = pl.Revolute("O", pl.ground.at(0, 0), bar.at(-0.5, 0), armature)
    return pl.Mechanism([bar], [joint], [pl.Gravity(9.81)], coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_pendulum_turns_by_its_whole_inertia(coordinates: str) -> None:
    """`(I + m l² + a) α = −m g l cos φ`, its derivative with respect to `a` in both modes, and a batch of armatures."""

    def alpha(armature: Any) -> Any:
        mechanism = pendulum(coordinates, armature)
        return mbd.read(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), "bar.alpha")

    moment, total = -2 * 9.81 * 0.5 * np.cos(0.3), lambda a: 0.1 + 2 * 0.25 + a
    a = jnp.asarray([0.0, 0.3, 5.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(alpha))(a), moment / total(a), rtol=SAME)
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(alpha)(0.3), -moment / total(0.3) ** 2, rtol=SAME)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_energy_is_kept_and_the_period_is_longer(coordinates: str) -> None:
    """Small oscillations: `ω² = m g l / (I + m l² + a)`."""
    mechanism = pendulum(coordinates, 0.3)
    state = mbd.assemble(mechanism, {"O.angle": -np.pi / 2 + 1e-3})
    omega = np.sqrt(2 * 9.81 * 0.5 / 0.9)
    solution = mbd.simulate(mechanism, state, jnp.linspace(0, 2 * np.pi / omega, 5), rtol=1e-10, atol=1e-13)
    swing = np.asarray(solution["O.angle"]) + np.pi / 2
    np.testing.assert_allclose(swing, 1e-3 * np.cos(np.pi / 2 * np.arange(5)), atol=1e-8)
    assert np.ptp(np.asarray(solution["energy"])) < 1e-10


def test_impossible_armatures_are_refused() -> None:
    for value in (-0.1, np.nan, np.inf):
        with pytest.raises(MechanismError, match=r"Revolute 'O': armature must be .*finite"):
            pendulum("joint", value)


@pytest.mark.slow
def test_stabilized_motion_conserves_energy_with_armatures() -> None:
    """The stabilisation of the speeds contains `Ṁ`; energy and momentum balance hold in a motion of the arm."""
    mechanism = arm("absolute").replacing(forces=[sp.Gravity()])
    solution = mbd.simulate(mechanism, moving(mechanism), jnp.linspace(0, 0.3, 4), rtol=1e-9, atol=1e-11)
    assert np.ptp(np.asarray(solution["energy"])) < 1e-7


def test_armature_is_a_leaf() -> None:
    """Another number compiles nothing anew."""
    mechanism = pendulum("joint", 0.3)
    heavier = eqx.tree_at(lambda m: m["O"].armature, mechanism, jnp.asarray(1.0))
    assert jax.tree.structure(heavier) == jax.tree.structure(mechanism)
    assert float(mbd.Equations(heavier).mass(jnp.zeros(1))[0, 0]) == pytest.approx(1.6)
