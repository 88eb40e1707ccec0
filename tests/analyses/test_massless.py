"""Parts without mass: positions, speeds and accelerations of a mechanism that its drivers move need none."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp


def driven(space: Any, coordinates: str, mass: float = 0.0, *, free: bool = False) -> Any:
    """A crank of .2 m that turns at 2 rad/s, and a slider at the end of a rod of .5 m, in the plane of x and y."""
    inertia = mass * 0.01 * (1.0 if space is pl else np.eye(3))
    crank = space.Body("crank", mass, inertia, (0.1, 0.0, 0.0))
    slider = space.Body("slider", mass, inertia, (0.7, 0.0, 0.0))
    along = {"axis": "x"} if space is sp else {}
    hinge = {"axis": "z"} if space is sp else {}
    joints = [
        space.Revolute("O", space.ground.at(**hinge), crank.at(-0.1, **hinge)),
        space.Prismatic("S", space.ground.at(**along), slider.at(**along)),
        space.Rod("rod", crank.at(0.1), slider.at(), 0.5),
    ]
    drivers = () if free else [space.Driver("motor", "O.angle", lambda t: 0.3 + 2.0 * t)]
    return space.Mechanism([crank, slider], joints, drivers=drivers, coordinates=coordinates)


def exact(angle: float) -> tuple[float, float]:
    """Position and speed of the slider."""
    root = np.sqrt(0.25 - 0.04 * np.sin(angle) ** 2)
    return 0.2 * np.cos(angle) + root, 2.0 * (-0.2 * np.sin(angle) - 0.04 * np.sin(angle) * np.cos(angle) / root)


CASES = [(space, coordinates) for space in (pl, sp) for coordinates in ("absolute", "joint")]


@pytest.mark.parametrize(("space", "coordinates"), CASES)
def test_a_driven_mechanism_needs_no_mass(space: Any, coordinates: str) -> None:
    mechanism = driven(space, coordinates)
    state = mbd.assemble(mechanism, t=0.2)
    np.testing.assert_allclose([state_value(mechanism, state, "S.displacement")], exact(0.7)[0], rtol=1e-12)
    np.testing.assert_allclose(mbd.read(mechanism, state, "S.displacement_rate"), exact(0.7)[1], rtol=1e-11)
    report = mbd.describe(mechanism, state)
    assert (report.freedom, report.remaining_freedom) == (1, 0)
    assert mbd.redundancy(mechanism, state).repeats == ()
    motion = mbd.kinematics(mechanism, np.linspace(0.0, 1.0, 5))
    wanted = np.array([exact(0.3 + 2.0 * t) for t in motion.ts])
    np.testing.assert_allclose(motion["S.displacement"], wanted[:, 0], rtol=1e-10)
    np.testing.assert_allclose(motion["S.displacement_rate"], wanted[:, 1], rtol=1e-9, atol=1e-10)


def state_value(mechanism: Any, state: mbd.State, name: str) -> Any:
    return mbd.read(mechanism, state, name)


@pytest.mark.parametrize(("space", "coordinates"), CASES)
def test_what_needs_masses_says_which_body_lacks_it(space: Any, coordinates: str) -> None:
    mechanism = driven(space, coordinates)
    state, ts = mbd.assemble(mechanism), np.linspace(0.0, 0.1, 3)
    for what, call in {
        "simulate": lambda: mbd.simulate(mechanism, state, ts),
        "inverse_dynamics": lambda: mbd.inverse_dynamics(mechanism, ts),
        "equilibrium": lambda: mbd.equilibrium(mechanism),
        "linearize": lambda: mbd.linearize(mechanism, state),
    }.items():
        with pytest.raises(mbd.MechanismError, match=f"^{what} needs the masses.*'crank' has no mass, 'slider' has no"):
            call()
    with pytest.raises(mbd.MechanismError, match=r"do not determine completely needs the masses.*'crank' has no mass"):
        mbd.assemble(driven(space, coordinates, free=True))


@pytest.mark.parametrize(("space", "coordinates"), [(pl, "absolute"), (sp, "joint")])
def test_traced_masses_may_be_zero(space: Any, coordinates: str) -> None:
    """Under `jit` and `vmap`; a derivative with respect to a length does not depend on the masses."""
    mechanism = driven(space, coordinates, 1.0)

    def speed(mass: Any, length: Any) -> Any:
        where = lambda m: (m["crank"].mass, m["slider"].mass, m["crank"].inertia, m["slider"].inertia, m["rod"].length)  # noqa: E731
        inertia = mass * mechanism["crank"].inertia
        changed = eqx.tree_at(where, mechanism, (mass, mass, inertia, inertia, length))
        return mbd.read(changed, mbd.assemble(changed, t=0.2), "S.displacement_rate")

    masses = jnp.array([0.0, 1.0])
    both = jax.jit(jax.vmap(speed, (0, None)))(masses, 0.5)
    np.testing.assert_allclose(both, exact(0.7)[1], rtol=1e-10)
    slopes = jax.jit(jax.vmap(jax.grad(speed, 1), (0, None)))(masses, 0.5)
    wanted = 2.0 * 0.04 * np.sin(0.7) * np.cos(0.7) * 0.5 / (0.25 - 0.04 * np.sin(0.7) ** 2) ** 1.5
    np.testing.assert_allclose(slopes, wanted, rtol=1e-8)


def test_free_speeds_without_mass_fail_in_a_batch() -> None:
    """One instance has masses, and the speeds of least kinetic energy; the other has none, and its speeds are NaN."""
    mechanism = driven(pl, "absolute", 1.0, free=True)

    def found(mass: Any) -> Any:
        where = lambda m: (m["crank"].mass, m["slider"].mass, m["crank"].inertia, m["slider"].inertia)  # noqa: E731
        changed = eqx.tree_at(where, mechanism, (mass,) * 4)
        state = mbd.assemble(changed, check=False)
        return jnp.max(jnp.abs(state.v)), mbd.RESULTS.where(True, state.result, state.result) == mbd.RESULTS.successful

    speeds, good = jax.vmap(found)(jnp.array([1.0, 0.0]))
    assert list(np.asarray(good)) == [True, False]
    np.testing.assert_allclose(speeds[0], 0.0, atol=1e-12)
    assert np.isnan(speeds[1])
