"""What bodies are made of: numbers or solids, and markers whose axis is a letter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import MechanismError
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.space import rotation as rot

EXACT = 1e-14


def test_a_solid_gives_mass_and_inertia() -> None:
    """By the closed form of a box; about z alone in the plane. A part that is off its centre keeps its inertia."""
    x, y, z = 0.3, 0.2, 0.1
    solid = sp.box(1000.0, x, y, z)
    moments = 6.0 / 12 * np.array([y * y + z * z, x * x + z * z, x * x + y * y])
    body = sp.Body("b", solid, pose=(1, 2, 3))
    np.testing.assert_allclose(body.mass, 6.0, rtol=EXACT)
    np.testing.assert_allclose(body.inertia, np.diag(moments), rtol=EXACT)
    np.testing.assert_array_equal(body.pose, [1, 2, 3, 1, 0, 0, 0])
    flat = pl.Body("b", solid.translated(x=5.0), pose=(1, 2, 0.5))
    np.testing.assert_allclose([flat.mass, flat.inertia], [6.0, moments[2]], rtol=EXACT)
    np.testing.assert_array_equal(flat.pose, [1, 2, 0.5])
    assert flat.inertia.shape == ()


@pytest.mark.parametrize("space", [pl, sp])
def test_a_solid_is_differentiated(space: object) -> None:
    """A rod's kinetic energy by its length `l`, inertia `m l² / 12` with `m = ρ π r² l`: `dE/dl = 3 E_turning / l`."""
    turns = jnp.array([0.0, 0.0, 2.0]) if space is pl else jnp.zeros(6).at[5].set(2.0)

    def energy(length: float) -> jax.Array:
        body = space.Body("b", space.rod(7800.0, length, 1e-3))  # pyright: ignore
        equations = mbd.Equations(space.Mechanism([body], floating=True))  # pyright: ignore
        return equations.kinetic_energy(body.pose, turns)

    length, mass = 0.7, 7800 * np.pi * 1e-6 * 0.7
    np.testing.assert_allclose(energy(length), 0.5 * mass * (length**2 / 12 + 1e-6 / 4 * (space is sp)) * 4, rtol=1e-5)
    difference = (energy(length + 1e-5) - energy(length - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(energy)(length), difference, rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(energy, (length,), (1.0,))[1], difference, rtol=1e-8)


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("space", [pl, sp])
def test_a_solid_and_an_inertia_contradict_each_other(space: object) -> None:
    solid = sp.box(1000.0, 0.3, 0.2, 0.1)
    with pytest.raises(MechanismError, match=r"Body 'b': the solid gives the inertia; leave inertia out, and give a"):
        space.Body("b", solid, (1.0, 2.0, 3.0))  # pyright: ignore
    with pytest.raises(MechanismError, match=r"Body 'b': inertia \[kg m²\] is missing. Give it, or a solid"):
        space.Body("b", 1.0)  # pyright: ignore


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("letter", "xyz")
def test_a_letter_is_an_axis(letter: str, sign: int) -> None:
    """On bodies and the ground, for rotations and steady rotations: the same as three numbers."""
    name = letter if sign > 0 else f"-{letter}"
    numbers = sign * np.eye(3)["xyz".index(letter)]
    body = sp.Body("b", 1.0, (1.0, 1.0, 1.0), sp.pose(1, 2, 3, rot.about("y", 0.4)))
    for there in (sp.ground.at, sp.ground.at_world, body.at, body.at_world):
        ours, given = there(1.0, 2.0, 3.0, axis=name), there(1.0, 2.0, 3.0, axis=numbers)
        np.testing.assert_array_equal(ours.rotation, given.rotation)
    marker = sp.ground.at(axis=name)
    np.testing.assert_allclose(rot.matrix(marker.rotation)[:, 2], numbers, atol=EXACT)
    np.testing.assert_allclose(rot.about(name, 0.3), rot.about(sign * np.eye(3)["xyz".index(letter)], 0.3), atol=EXACT)
    space = sp.Mechanism([body], floating=True).space
    ours, given = mbd.Rotation(2.0, axis=name), mbd.Rotation(2.0, axis=numbers)
    np.testing.assert_allclose(ours.rate(space), given.rate(space), atol=EXACT)
    np.testing.assert_allclose(ours.rate(space)[3:], 2.0 * numbers, atol=EXACT)


@pytest.mark.parametrize("axis", ["w", "--x", "+x", "", "xy", "X"])
def test_other_letters_are_no_axis(axis: str) -> None:
    says = f"must be 'x', 'y', 'z', '-x', '-y', '-z' or a direction of three numbers, got {axis!r}"
    with pytest.raises(MechanismError, match="Marker on 'ground': axis") as error:
        sp.ground.at(axis=axis)
    assert says in str(error.value)
    with pytest.raises(MechanismError, match=r"rotation\.along: x"):
        rot.along("z", axis)
    with pytest.raises(MechanismError, match="Rotation: axis"):
        mbd.Rotation(1.0, axis=axis)
