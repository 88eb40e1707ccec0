"""Assembly with values of sensors and of orientation angles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.space import rotation as rot
from tests.marks import in_both_coordinates

CLOSED = 1e-9


def arm(coordinates: str = "absolute") -> pl.Mechanism:
    """Two bars of .5 m and .4 m, one on the other; a sensor at the tip, one of its distance from a point."""
    upper, lower = pl.Body("upper", 1.0, 0.1, (0.25, 0.0, 0.0)), pl.Body("lower", 1.0, 0.1, (0.5, 0.2, 1.5))
    tip, peg = lower.at(0.2), pl.ground.at(0.1, 0.6)
    joints = [pl.Revolute("O", pl.ground.at(), upper.at(-0.25)), pl.Revolute("P", upper.at(0.25), lower.at(-0.2))]
    sensors = [pl.Point("tip", tip), pl.Distance("reach", peg, tip), pl.Scaled("encoder", "O.angle", -2.0, 0.1)]
    return pl.Mechanism([upper, lower], joints, sensors=sensors, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_point_is_put_where_it_is_asked_for(coordinates: str) -> None:
    """The arm's two angles by the law of cosines, and their derivatives by the place."""
    mechanism = arm(coordinates)

    def angles(place: Any) -> jax.Array:
        state = mbd.assemble(mechanism, {"tip": place})
        return jnp.stack([*mbd.read(mechanism, state, ["O.angle", "P.angle"]).values()])

    def closed(place: Any) -> jax.Array:
        square = jnp.sum(place**2)
        elbow = jnp.arccos((square - 0.5**2 - 0.4**2) / (2 * 0.5 * 0.4))
        inner = jnp.arccos((square + 0.5**2 - 0.4**2) / (2 * 0.5 * jnp.sqrt(square)))
        return jnp.stack([jnp.arctan2(place[1], place[0]) - inner, elbow])

    place = jnp.array([0.55, 0.3])
    np.testing.assert_allclose(angles(place), closed(place), atol=CLOSED)
    exact = jax.jacfwd(closed)(place)
    np.testing.assert_allclose(jax.jacfwd(angles)(place), exact, atol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.jacrev(angles))(place), exact, atol=1e-7)


def test_scaled_and_distant_readings_in_a_batch() -> None:
    """An encoder's reading and a distance, of several positions at once."""
    mechanism = arm()

    def found(encoder: Any, reach: Any) -> Any:
        state = mbd.assemble(mechanism, {"encoder": encoder, "reach": reach})
        return mbd.read(mechanism, state, ["O.angle", "reach"])

    readings, reaches = jnp.array([0.1, -0.3, 0.5]), jnp.array([0.5, 0.45, 0.55])
    values = jax.jit(jax.vmap(found))(readings, reaches)
    np.testing.assert_allclose(values["O.angle"], (0.1 - readings) / 2, atol=CLOSED)
    np.testing.assert_allclose(values["reach"], reaches, atol=CLOSED)


def top(coordinates: str = "absolute") -> sp.Mechanism:
    """A body on a ball joint, with one of its angles in another sequence."""
    body = sp.Body("frame", 1.0, (0.1, 0.2, 0.25), (0.1, 0.2, 0.3))
    ball = sp.Spherical("ball", sp.ground.at(), body.at(-0.1, -0.2, -0.3))
    sensors = [sp.EulerAngle("heading", body.at(), "zxy", 1), sp.EulerAngle("lean", body.at(), "zxy", 2)]
    return sp.Mechanism([body], [ball], sensors=sensors, coordinates=coordinates)


@in_both_coordinates("absolute")
def test_orientation_is_fixed_by_its_angles(coordinates: str) -> None:
    """Yaw, pitch and roll as of `rotation.from_angles`, and the derivatives of the place of the body by them."""
    mechanism = top(coordinates)

    def place(angles: Any) -> jax.Array:
        state = mbd.assemble(mechanism, dict(zip(("frame.yaw", "frame.pitch", "frame.roll"), angles, strict=True)))
        return mbd.read(mechanism, state, "frame.position")

    def closed(angles: Any) -> jax.Array:
        return rot.rotate(rot.from_angles(angles, "zyx"), (0.1, 0.2, 0.3))

    angles = jnp.array([0.4, -0.3, 0.7])
    np.testing.assert_allclose(place(angles), closed(angles), atol=CLOSED)
    np.testing.assert_allclose(jax.jacrev(place)(angles), jax.jacfwd(closed)(angles), atol=1e-7)


def test_an_angle_of_any_sequence_is_fixed() -> None:
    """Heading and lean of a frame; a turn more makes no difference. The rest stays near its guess."""
    mechanism = top()
    state = mbd.assemble(mechanism, {"heading": 0.9 + 2 * np.pi, "lean": 0.2})
    found = mbd.read(mechanism, state, ["heading", "lean"])
    np.testing.assert_allclose([*found.values()], [0.9, 0.2], atol=CLOSED)
    a1, a2, _ = rot.angles(state.q[3:7], "zxy")
    np.testing.assert_allclose([a1, a2], [0.9, 0.2], atol=CLOSED)

    def readings(lean: Any) -> jax.Array:
        leaning = mbd.assemble(mechanism, {"heading": 0.9, "lean": lean})
        return jnp.stack([*mbd.read(mechanism, leaning, ["heading", "lean"]).values()])

    np.testing.assert_allclose(jax.jacfwd(readings)(0.2), [0.0, 1.0], atol=1e-7)


def test_what_cannot_be_reached_is_named() -> None:
    with pytest.raises(mbd.AssemblyError, match="'tip' misses by"):
        mbd.assemble(arm(), {"tip": (1.5, 0.0)})
    with pytest.raises(mbd.MechanismError, match=r"fixed: 'tip' must have shape \(2,\), got shape \(\)"):
        mbd.assemble(arm(), {"tip": 0.3})
    with pytest.raises(mbd.MechanismError, match="There is no joint or body named 'tap'"):
        mbd.assemble(arm(), {"tap": 0.3})
