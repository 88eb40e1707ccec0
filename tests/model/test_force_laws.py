"""Laws that every force has to keep: where it acts, resultants, potentials, dissipation."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.model.force.force import AbstractJointForce, AbstractLoadedForce, scaled
from jaxmbd.model.mechanism.named_coordinates import CompositeCoordinate
from tests.model.law_bench import (
    EXACT,
    FIRST,
    OFFSETS,
    SPACES,
    STEP,
    Bench,
    T,
    bench,
    cross,
    over,
    resultant,
    rotation_matrix,
)
from tests.model.laws import unit


def to_centre(b: Bench, marker: Any, place: np.ndarray, wrench: np.ndarray) -> np.ndarray:
    """The generalized force of a wrench at a marker, on its body."""
    i = [body.name for body in b.mechanism.bodies].index(marker.body)
    if b.space == "planar":
        pose = b.q[3 * i : 3 * i + 3]
        return np.append(wrench[:2], wrench[2:] + cross((place - pose[:2])[None], wrench[None, :2])[0])
    pose = b.q[7 * i : 7 * i + 7]
    moment = wrench[3:] + np.cross(place - pose[:3], wrench[:3])
    return np.append(wrench[:3], rotation_matrix(pose[3:]).T @ moment)


def along_coordinate(b: Bench, part: Any, columns: np.ndarray) -> np.ndarray:
    """The generalized force of a law along a joint's coordinate: the coordinate's slope, by differences, times it."""
    value = values_along(b, part, columns)
    slope = value[:-1].reshape(-1, 4) @ FIRST / STEP
    load: list[Any] = []
    if isinstance(part, AbstractLoadedForce):  # the effort along the coordinate, by the power of both
        teeth = b.mechanism[part.load]
        twist = values_along(b, teeth, columns)
        turned = twist[:-1].reshape(-1, 4) @ FIRST / STEP
        ratio = -teeth_ratio(b, teeth)
        load = [float(teeth.effort(*(jnp.asarray(x) for x in (T, twist[-1], turned @ b.v[columns])))) * ratio]
    return slope * float(part.effort(*(jnp.asarray(x) for x in (T, value[-1], slope @ b.v[columns], *load))))


def teeth_ratio(b: Bench, teeth: Any) -> float:
    """The ratio of the mesh on which teeth act."""
    return float(b.mechanism[teeth.coordinate.split(".")[0]].ratio)


def values_along(b: Bench, part: Any, columns: np.ndarray) -> np.ndarray:
    """The values of a part's coordinate, after small steps along each column, then without one."""
    coordinate = b.mechanism.coordinate(part.coordinate)
    parts: Any = coordinate.parts if isinstance(coordinate, CompositeCoordinate) else (coordinate,)
    values = []
    steps = [(j, k) for j in columns for k in OFFSETS]
    for c in parts:
        many = [b.at_markers(c.markers, b.moved(k * STEP * (np.arange(len(b.v)) == j)), b.v)[0] for j, k in steps]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *many, b.at_markers(c.markers, b.q, b.v)[0])
        own = np.asarray(jax.vmap(lambda frames, c=c: c.joint.motion(frames)[c.index])(stacked))
        if c.unwrapped:
            near = float(b.turns[b.mechanism.turns.index(c.name)])
            own = own + 2 * np.pi * np.round((near - own) / (2 * np.pi))
        values.append(own)
    if not isinstance(coordinate, CompositeCoordinate):
        return values[0]
    return np.asarray(jax.vmap(coordinate.law.value)(*map(jnp.asarray, values)))


def gyroscopic(b: Bench, columns: np.ndarray) -> np.ndarray:
    """What the speeds alone give: `−ω × J ω` on the bodies."""
    total = np.zeros(len(b.v))
    for i, body in enumerate(b.mechanism.bodies):
        if b.space == "spatial":
            omega = b.v[6 * i + 3 : 6 * i + 6]
            total[6 * i + 3 : 6 * i + 6] = -np.cross(omega, np.asarray(body.inertia) @ omega)
    return total[columns]


@pytest.mark.parametrize(("space", "name"), over("forces"))
def test_force_is_that_of_the_law(space: str, name: str) -> None:
    """Grouping: the force on an example's bodies is its own law's, moved to the centres of mass."""
    b = bench(space, "forces")
    part, columns = b.mechanism[name], b.columns(name)
    total = b.at["force"][columns] - gyroscopic(b, columns)
    assert np.abs(total).max() > 1e-3
    if hasattr(part, "coordinate"):
        together = [force for force in b.mechanism.forces if unit(force.name) == name]
        expected = sum(along_coordinate(b, force, columns) for force in together)
        np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-9)
        return
    frames, rates = b.at_markers(part.markers, b.q, b.v)
    where, _ = b.places(part.markers, b.q)
    expected = np.zeros(len(b.v))
    bodies = [body.name for body in b.mechanism.bodies]
    wrenches = np.asarray(part.wrenches(jnp.asarray(T), frames, rates))
    for marker, place, wrench in zip(part.markers, where, wrenches, strict=True):
        if marker.body != "ground":
            i = bodies.index(marker.body)
            expected[b.width * i : b.width * (i + 1)] += to_centre(b, marker, place, wrench)
    np.testing.assert_allclose(total, expected[columns], rtol=EXACT, atol=EXACT)


def on_two_bodies(space: str) -> list[Any]:
    return [p for p in over("forces", lambda case: case.pair) if p.values[0] == space and "ground" not in p.id]


@pytest.mark.parametrize(("space", "name"), on_two_bodies("planar") + on_two_bodies("spatial"))
def test_force_on_two_bodies_has_no_resultant(space: str, name: str) -> None:
    """Equal and opposite: sum of forces, and of moments about the world's origin."""
    b = bench(space, "forces")
    columns = b.columns(name)
    found = (b.at["force"][columns] - gyroscopic(b, columns)).reshape(-1, b.width)
    dim = b.mechanism.space.dim
    poses = b.q[: len(b.q) - len(b.turns)].reshape(len(b.mechanism.bodies), -1)
    poses = poses[columns[:: b.width] // b.width]
    moments = found[:, dim:]
    if dim == 3:
        moments = np.stack([rotation_matrix(p[3:]) @ m for p, m in zip(poses, moments, strict=True)])
    assert np.abs(moments).max() > 1e-3
    wrenches = np.concatenate([found[:, :dim], moments], axis=1)
    np.testing.assert_allclose(resultant(wrenches, poses[:, :dim]), 0.0, atol=1e-12 * max(10, np.abs(found).max()))


@cache
def at_rest(space: str) -> dict[str, Any]:
    b = bench(space, "forces")
    return b(T, b.q, 0 * b.v)


@pytest.mark.parametrize(("space", "name"), over("forces", lambda case: case.conserves))
def test_spring_is_the_slope_of_its_potential(space: str, name: str) -> None:
    """At rest, force = −∂V/∂q, pulled back to the speeds."""
    columns = bench(space, "forces").columns(name)
    force, slope = at_rest(space)["force"][columns], at_rest(space)["slope"][columns]
    assert np.abs(slope).max() > 0.1
    np.testing.assert_allclose(force, -slope, rtol=1e-11, atol=1e-11)


@cache
def pushes(space: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random speeds, and what they add to the forces."""
    b = bench(space, "forces")
    speeds = [np.random.default_rng(k).normal(size=b.v.size) for k in range(4)]
    return [(v, b(T, b.q, v)["force"] - at_rest(space)["force"]) for v in speeds]


@pytest.mark.parametrize(("space", "name"), over("forces", lambda case: case.dissipates))
def test_damper_takes_energy(space: str, name: str) -> None:
    """What the speeds add to a force has negative power, at speeds of either sign."""
    columns = bench(space, "forces").columns(name)
    for v, force in pushes(space):
        assert force[columns] @ v[columns] < -1e-4


@pytest.mark.parametrize(("space", "name"), over("forces", lambda case: case.still))
def test_parts_without_damping_do_not_feel_speed(space: str, name: str) -> None:
    """The spring alone, and constant forces, are the same at any speed."""
    b, columns = bench(space, "forces"), bench(space, "forces").columns(name)
    force = b.at["force"][columns] - gyroscopic(b, columns)
    np.testing.assert_allclose(force, at_rest(space)["force"][columns], atol=EXACT)


@pytest.mark.parametrize("space", SPACES)
def test_fields_act_on_every_body(space: str) -> None:
    """Gravity is `m g` and the slope of its potential; a generalized force is what its function says."""
    module, rng = SPACES[space].space, np.random.default_rng(1)
    gravity, stir = SPACES[space].fields
    bodies = [SPACES[space].body(name, rng) for name in "ab"]
    q = jnp.concatenate([b.pose for b in bodies])
    width = len(bodies[0].space.speeds)
    still = jnp.zeros(2 * width)

    @jax.jit
    def forces(v: Array) -> tuple[Array, Array, Array]:
        one = mbd.Equations(module.Mechanism(bodies, forces=[gravity]))
        two = mbd.Equations(module.Mechanism(bodies, forces=[gravity, stir]))
        t = jnp.asarray(T)
        slope = jax.grad(lambda d: one.potential_energy(t, one.retract(t, q, d)))(still)
        return one.force(t, q, v), two.force(t, q, v), slope

    field = np.pad(np.asarray(gravity.acceleration), (0, width - gravity.acceleration.size))
    expected = np.concatenate([float(b.mass) * field for b in bodies])
    alone, _, slope = forces(still)
    np.testing.assert_allclose(alone, expected, rtol=1e-14)
    np.testing.assert_allclose(slope, -expected, atol=EXACT)
    v = jnp.arange(2.0 * width) - 2.2
    alone, both, _ = forces(v)
    expected = 0.3 * np.cos(T) * q[: len(v)] - 0.1 * v * jnp.sum(v * v)
    np.testing.assert_allclose(both - alone, expected, rtol=1e-12, atol=1e-12)


def test_a_scaled_force_is_a_multiple() -> None:
    """Its wrenches, or its effort along a coordinate, and its potential."""
    b, t, x, factor = bench("planar", "forces"), jnp.asarray(T), jnp.asarray(0.7), jnp.asarray(-2.5)
    efforts = [force for force in b.mechanism.forces if isinstance(force, AbstractJointForce)]
    assert len(efforts) > 1
    for force in efforts:
        mine = scaled(force, factor)
        np.testing.assert_allclose(mine.effort(t, x, -x), -2.5 * force.effort(t, x, -x), rtol=1e-14)
        np.testing.assert_allclose(mine.potential(x), -2.5 * force.potential(x), rtol=1e-14)
    spring = b.mechanism["SpringDamper"]
    frames, rates = b.at_markers(spring.markers, b.q, b.v)
    mine = scaled(spring, factor)
    np.testing.assert_allclose(mine.wrenches(t, frames, rates), -2.5 * spring.wrenches(t, frames, rates), rtol=1e-14)
    np.testing.assert_allclose(mine.potential(t, frames), -2.5 * spring.potential(t, frames), rtol=1e-14)
