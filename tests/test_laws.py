"""Laws that every joint, driver, force and sensor has to keep, run over one example or more of each class."""

import inspect
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import laws
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd._analysis._readings import Snapshot, read
from jaxmbd._equations._groups import group_parts

JOINTS, FORCES, SENSORS = laws.names(laws.JOINTS), laws.names(laws.FORCES), laws.names(laws.SENSORS)
CONSTRAINTS = [*JOINTS, *laws.GLOBALS]
PAIRED = [n for n in JOINTS if laws.case_of(n).pair]
STILL = [n for n in PAIRED if not laws.case_of(n).moves]

EXACT = 1e-12  # the same sum in another order
DIFFERENCE = 2e-7  # central differences, relative to numbers of size 1 to 100
T = 0.37  # [s]
STEP = 1e-3  # of time [s] or a coordinate, for differences of fourth order


class Values(NamedTuple):
    """Everything the equations say at one instant."""

    phi: Array
    C: Array
    velocity: Array
    gamma: Array
    mass: Array
    force: Array
    rest_force: Array
    potential: Array
    slope: Array
    readings: dict[str, Array]


@eqx.filter_jit
def evaluate(mechanism: pl.Mechanism, t: Array, q: Array, v: Array, a: Array) -> Values:
    """All of it in one compiled function, shared by the tests."""
    equations = mbd.Equations(mechanism)
    potential, slope = jax.value_and_grad(lambda x: equations.potential_energy(t, x))(q)
    names = [sensor.name for sensor in mechanism.sensors]
    return Values(
        equations.position(t, q),
        equations.jacobian(t, q),
        equations.velocity(t, q, v),
        equations.gamma(t, q, v),
        equations.mass(),
        equations.force(t, q, v),
        equations.force(t, q, jnp.zeros_like(v)),
        potential,
        slope,
        read(equations, names, Snapshot(t, q, v, a, jnp.ones(equations.m))),
    )


class Bench(NamedTuple):
    """A mechanism with the examples, a state (not fitted), and what the equations say there."""

    mechanism: pl.Mechanism
    t: Array
    q: Array
    v: Array
    a: Array
    at: Values
    rows: dict[str, slice]

    def columns(self, name: str) -> np.ndarray:
        """The columns of the bodies that belong to an example."""
        owned = [i for i, body in enumerate(self.mechanism.bodies) if body.name.startswith(f"{name}/")]
        return np.concatenate([np.arange(3 * i, 3 * i + 3) for i in owned])


def rows_of(mechanism: pl.Mechanism) -> dict[str, slice]:
    """The rows of each constraint in the order of declaration, counted here anew."""
    ends = np.cumsum(mechanism.constraint_sizes())
    sizes = zip(mechanism.constraints(), ends, mechanism.constraint_sizes(), strict=True)
    return {part.name: slice(int(end) - size, int(end)) for part, end, size in sizes}


@cache
def bench(kind: str) -> Bench:
    """The bench of a kind, evaluated once."""
    extra = tuple(make(name) for name, make in laws.GLOBALS.items()) if kind == "JOINTS" else ()
    mechanism = laws.bench(getattr(laws, kind), extra)
    rng = np.random.default_rng(8)
    q = jnp.concatenate([body.pose for body in mechanism.bodies])
    v, a = (jnp.asarray(rng.normal(size=mechanism.nv)) for _ in range(2))
    t = jnp.asarray(T)
    return Bench(mechanism, t, q, v, a, evaluate(mechanism, t, q, v, a), rows_of(mechanism))


def along(b: Bench, order: int, f: Any) -> Array:
    """The time derivative of `f(t, q, v)` along `q(s) = q + s v + s² a / 2`, by differences of fourth order."""
    steps = jnp.arange(-2, 3) * STEP
    weights = {1: (1 / 12, -2 / 3, 0, 2 / 3, -1 / 12), 2: (-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12)}[order]
    at = jax.vmap(lambda s: f(b.t + s, b.q + s * b.v + 0.5 * s * s * b.a, b.v + s * b.a))(steps)
    return jnp.tensordot(jnp.asarray(weights), at, 1) / STEP**order


@cache
def differences() -> tuple[Array, Array, Array]:
    """`C`, `Φ̇` and `Φ̈` of the bench of joints, by differences of `Φ`."""
    b = bench("JOINTS")
    equations = mbd.Equations(b.mechanism)

    @jax.jit
    def all_three() -> tuple[Array, Array, Array]:
        def column(e: Array) -> Array:
            def phi(s: float) -> Array:
                return equations.position(b.t, b.q + s * STEP * e)

            return (phi(-2) - 8 * phi(-1) + 8 * phi(1) - phi(2)) / (12 * STEP)

        def position(t: Array, q: Array, v: Array) -> Array:
            return equations.position(t, q)

        return jax.vmap(column)(jnp.eye(b.q.size)).T, along(b, 1, position), along(b, 2, position)

    return all_three()


def test_every_public_part_is_registered() -> None:
    """A new class has to come with an example here."""
    apart = {pl.Body, pl.Marker, pl.Mechanism, pl.Frame}
    public = {value for value in vars(pl).values() if inspect.isclass(value)}
    assert public - apart == laws.REGISTERED


# --- joints and drivers ----------------------------------------------------------------------------------------


@cache
def fitted() -> mbd.State:
    """The bench of joints, assembled; its time is not zero, so that moving constraints are at work."""
    return mbd.assemble(bench("JOINTS").mechanism, t=T)


@cache
def fitted_residuals() -> tuple[Array, Array]:
    state = fitted()
    values = evaluate(bench("JOINTS").mechanism, state.t, state.q, state.v, jnp.zeros_like(state.v))
    return values.phi, values.velocity


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_assembled_joint_is_fitted(name: str) -> None:
    """`Φ = 0` and `Φ̇ = 0` after `assemble`, and not before it."""
    b = bench("JOINTS")
    phi, velocity = fitted_residuals()
    assert np.abs(b.at.phi[b.rows[name]]).max() > 1e-3
    np.testing.assert_allclose(phi[b.rows[name]], 0.0, atol=1e-10)
    np.testing.assert_allclose(velocity[b.rows[name]], 0.0, atol=1e-10)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_derivatives_of_constraints_are_those_of_phi(name: str) -> None:
    """`C`, `Φ̇ = C v + Φ_t` and `Φ̈ = C v̇ − γ` against differences of `Φ` along `q(t)`."""
    b, (C, first, second), rows = bench("JOINTS"), differences(), bench("JOINTS").rows[name]
    assert np.abs(b.at.C[rows]).max() > 0.05
    np.testing.assert_allclose(b.at.C[rows], C[rows], atol=1e-9)
    np.testing.assert_allclose(b.at.velocity[rows], first[rows], atol=1e-8)
    np.testing.assert_allclose(b.at.C[rows] @ b.a - b.at.gamma[rows], second[rows], atol=1e-7)


@pytest.mark.parametrize("name", JOINTS)
def test_rows_are_those_of_the_law_and_in_their_place(name: str) -> None:
    """Grouping: a joint's rows of `Φ` are its own residual, and touch its own bodies only."""
    b = bench("JOINTS")
    part: Any = next(p for p in b.mechanism.constraints() if p.name == name)
    residual = part.residual(b.t, b.mechanism.frames(part.markers, b.q))
    np.testing.assert_allclose(b.at.phi[b.rows[name]], residual, atol=EXACT)
    others = np.delete(np.asarray(b.at.C[b.rows[name]]), b.columns(name), axis=1)
    np.testing.assert_array_equal(others, 0.0)


class Loads(NamedTuple):
    """Of one joint: the wrench on the body at each marker, the markers' places, and their velocities."""

    wrenches: np.ndarray
    places: np.ndarray
    velocities: np.ndarray


@cache
def loads() -> dict[str, Loads]:
    """At the fitted state: reactions to random multipliers, with random speeds that all rows allow."""
    b, state = bench("JOINTS"), fitted()
    rng = np.random.default_rng(3)
    C = np.asarray(evaluate(b.mechanism, state.t, state.q, state.v, b.a).C)
    v = rng.normal(size=b.mechanism.nv)
    v = v - np.linalg.pinv(C) @ (C @ v)
    lam = jnp.asarray(rng.normal(size=C.shape[0]))
    equations = mbd.Equations(b.mechanism)
    local = [part for part in b.mechanism.constraints() if not isinstance(part, pl.GlobalConstraint)]
    markers = [part.markers for part in local]

    def places(s: Array) -> list[Array]:
        frames = [b.mechanism.frames(some, state.q + s * v) for some in markers]
        return [jnp.stack([jnp.append(f.position, f.angle) for f in some]) for some in frames]

    where, rates = jax.jit(lambda: jax.jvp(places, (0.0,), (1.0,)))()
    groups = jax.jit(lambda: equations.reactions(state.t, state.q, lam))()
    found = {}
    for group, wrenches in zip(equations.joints, groups, strict=True):
        for member, about_centre in zip(group.members, np.asarray(wrenches), strict=True):
            centres = np.stack(b.mechanism.poses(markers[member], state.q))[:, :2]
            (dx, dy), (fx, fy, moment) = (np.asarray(where[member])[:, :2] - centres).T, about_centre.T
            moved = np.stack([fx, fy, moment - dx * fy + dy * fx], axis=1)
            found[local[member].name] = Loads(moved, np.asarray(where[member]), np.asarray(rates[member]))
    return found


@pytest.mark.parametrize("name", STILL)
def test_ideal_joint_does_no_work(name: str) -> None:
    """On speeds that the joints allow, the power of a joint's wrenches at its markers is zero."""
    load = loads()[name]
    each = load.wrenches * load.velocities
    assert np.abs(load.velocities).max() > 0.05 or name == "Weld on ground"
    assert np.abs(load.wrenches).max() > 0.05
    np.testing.assert_allclose(each.sum(), 0.0, atol=1e-10)


@pytest.mark.parametrize("name", PAIRED)
def test_reaction_equals_action(name: str) -> None:
    """What a joint does to its bodies (the ground and a gear's carrier included) has no resultant."""
    load = loads()[name]
    (fx, fy, moment), (x, y, _) = load.wrenches.T, load.places.T
    np.testing.assert_allclose([fx.sum(), fy.sum(), (moment + x * fy - y * fx).sum()], 0.0, atol=1e-10)


def test_a_driver_does_work() -> None:
    """The other side of the law above: a moving driver's speeds are not among those its row allows at rest."""
    b = bench("JOINTS")
    moving = [name for name in CONSTRAINTS if "GlobalConstraint, moving" in name or "moving" in name]
    moving += [name for name in JOINTS if name.startswith(("Driver of an", "Driver of a displacement"))]
    at_rest = evaluate(b.mechanism, b.t, b.q, jnp.zeros_like(b.v), b.a)
    for name in CONSTRAINTS:
        needs = float(np.abs(at_rest.velocity[b.rows[name]]).max())
        moves = name in moving or name.startswith("Driver of a body")
        assert (needs > 1e-3) == moves, name


# --- forces ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORCES)
def test_force_is_that_of_the_law(name: str) -> None:
    """Grouping: the force on an example's bodies is its own law's, moved to the centres of mass."""
    b = bench("FORCES")
    part = b.mechanism[name]
    total = np.asarray(b.at.force)[b.columns(name)]
    assert np.abs(total).max() > 1e-3
    if isinstance(part, pl.JointForce | pl.JointFriction):
        c = b.mechanism.coordinate(part.coordinate)
        slope = jax.grad(lambda q: c.value(b.mechanism.frames(c.markers, q)))(b.q)
        value = c.value(b.mechanism.frames(c.markers, b.q))
        expected = slope * part.effort(b.t, value, slope @ b.v)
        np.testing.assert_allclose(total, expected[b.columns(name)], atol=EXACT)
        return
    frames, rates = jax.jvp(lambda q: b.mechanism.frames(part.markers, q), (b.q,), (b.v,))
    expected = np.zeros(b.q.size)
    index = [body.name for body in b.mechanism.bodies]
    for marker, frame, wrench in zip(part.markers, frames, part.wrenches(b.t, frames, rates), strict=True):
        if marker.body != "ground":
            k = 3 * index.index(marker.body)
            (dx, dy), (fx, fy, moment) = frame.position - b.q[k : k + 2], wrench
            expected[k : k + 3] += np.asarray([fx, fy, moment + dx * fy - dy * fx])
    np.testing.assert_allclose(total, expected[b.columns(name)], atol=EXACT)


@pytest.mark.parametrize("name", [n for n in FORCES if laws.case_of(n).pair and "ground" not in n])
def test_force_on_two_bodies_has_no_resultant(name: str) -> None:
    """Equal and opposite: sum of forces, and of moments about the world's origin."""
    b = bench("FORCES")
    (fx, fy, moment) = np.asarray(b.at.force)[b.columns(name)].reshape(-1, 3).T
    (x, y, _) = np.asarray(b.q)[b.columns(name)].reshape(-1, 3).T
    assert np.abs(moment).max() > 1e-3
    np.testing.assert_allclose([fx.sum(), fy.sum(), (moment + x * fy - y * fx).sum()], 0.0, atol=EXACT * 100)


@pytest.mark.parametrize("name", [n for n in FORCES if laws.case_of(n).conserves])
def test_spring_is_the_slope_of_its_potential(name: str) -> None:
    """At rest, force = −∂V/∂q."""
    b, columns = bench("FORCES"), bench("FORCES").columns(name)
    assert np.abs(b.at.slope[columns]).max() > 0.1
    np.testing.assert_allclose(b.at.rest_force[columns], -b.at.slope[columns], atol=1e-11)


@pytest.mark.parametrize("name", [n for n in FORCES if laws.case_of(n).dissipates])
def test_damper_takes_energy(name: str) -> None:
    """What the speeds add to a force has negative power, at speeds of either sign."""
    b, columns = bench("FORCES"), bench("FORCES").columns(name)
    for k in range(4):
        v = jnp.asarray(np.random.default_rng(k).normal(size=b.v.size))
        at = evaluate(b.mechanism, b.t, b.q, v, b.a)
        assert float(jnp.dot((at.force - at.rest_force)[columns], v[columns])) < -1e-4


def test_parts_without_damping_do_not_feel_speed() -> None:
    """The spring alone, and constant forces, are the same at any speed."""
    b = bench("FORCES")
    for case in ("Force", "Force, body", "Torque", "SpringDamper, spring", "SpringDamper, constant"):
        for name in (case, f"{case} on ground"):
            columns = b.columns(name)
            np.testing.assert_allclose(b.at.force[columns], b.at.rest_force[columns], atol=EXACT)


def test_fields_act_on_every_body() -> None:
    """Gravity is `m g` and the slope of its potential; a generalized force is what its function says."""
    gravity, stir = laws.fields()
    bodies = [pl.Body("a", 2.0, 0.3, (0.1, 0.2, 0.3)), pl.Body("b", 0.5, 0.1, (-0.4, 0.5, 0.6))]
    q, v = jnp.concatenate([b.pose for b in bodies]), jnp.arange(6.0) - 2.2
    at = evaluate(pl.Mechanism(bodies, forces=[gravity]), jnp.asarray(T), q, v, v)
    np.testing.assert_allclose(at.force, [0.8, -19.62, 0, 0.2, -4.905, 0], rtol=1e-14)
    np.testing.assert_allclose(at.force, -at.slope, atol=EXACT)
    both = evaluate(pl.Mechanism(bodies, forces=[gravity, stir]), jnp.asarray(T), q, v, v)
    expected = 0.3 * np.cos(T) * q - 0.1 * v * jnp.sum(v * v)
    np.testing.assert_allclose(both.force - at.force, expected, atol=1e-13)


# --- sensors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in SENSORS if not n.startswith("Measure")])
def test_sensor_reads_the_motion_of_its_marker(name: str) -> None:
    """Position, velocity and acceleration of a point, against differences of its position along `q(t)`."""
    b = bench("SENSORS")
    at = b.mechanism[name].at

    def position(t: Array, q: Array, v: Array) -> Array:
        return b.mechanism.frames([at], q)[0].position

    order = {"Point": 0, "PointVelocity": 1, "PointAcceleration": 2}[name.removesuffix(" on ground")]
    expected = position(b.t, b.q, b.v) if order == 0 else along(b, order, position)
    np.testing.assert_allclose(b.at.readings[name], expected, atol=1e-8)


@pytest.mark.parametrize("name", [n for n in SENSORS if n.startswith("Measure")])
def test_measure_is_what_its_function_says(name: str) -> None:
    b = bench("SENSORS")
    scale = 1.95 if name.endswith("ground") else 1.5
    expected = scale * b.v.sum() + b.q @ b.a + T
    np.testing.assert_allclose(b.at.readings[name], expected, rtol=1e-13)


# --- parameters --------------------------------------------------------------------------------------------------


class Slopes(NamedTuple):
    """Of one number computed from all that the equations say: its derivatives by every parameter, two ways."""

    reverse: Any
    difference: Any


@cache
def slopes(kind: str) -> Slopes:
    b = bench(kind)
    arrays, static = eqx.partition(b.mechanism, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(arrays)
    rng = np.random.default_rng(11)
    leaves, tree = jax.tree.flatten(b.at)
    weights = jax.tree.unflatten(tree, [jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves])

    def number(p: Array) -> Array:
        values = evaluate(eqx.combine(unravel(p), static), b.t, b.q, b.v, b.a)
        return sum(jax.tree.leaves(jax.tree.map(lambda w, x: jnp.sum(w * x), weights, values)), jnp.zeros(()))

    @jax.jit
    def both(p: Array) -> tuple[Array, Array]:
        offsets = jnp.asarray([-2.0, -1.0, 1.0, 2.0]) * STEP
        index, offset = jnp.repeat(jnp.arange(p.size), 4), jnp.tile(offsets, p.size)
        values = jax.lax.map(lambda io: number(p.at[io[0]].add(io[1])), (index, offset)).reshape(-1, 4)
        return jax.grad(number)(p), values @ jnp.asarray([1.0, -8.0, 8.0, -1.0]) / (12 * STEP)

    reverse, difference = both(flat)
    return Slopes(unravel(reverse), unravel(difference))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("JOINTS", n) for n in CONSTRAINTS] + [("FORCES", n) for n in FORCES] + [("SENSORS", n) for n in SENSORS],
)
def test_gradient_with_respect_to_every_parameter(kind: str, name: str) -> None:
    """Of all rows, forces, energies and readings together: reverse mode against differences, part by part."""
    found = slopes(kind)
    reverse, difference = jax.tree.leaves(found.reverse[name]), jax.tree.leaves(found.difference[name])
    assert len(reverse) == len(difference)
    for exact, estimate in zip(reverse, difference, strict=True):
        np.testing.assert_allclose(exact, estimate, rtol=DIFFERENCE, atol=DIFFERENCE)


@pytest.mark.parametrize("kind", ["JOINTS", "FORCES"])
def test_no_parameter_is_dead(kind: str) -> None:
    """Each number of a part, its markers apart, and each body's inertia, changes something."""
    mechanism, found = bench(kind).mechanism, slopes(kind)
    for part in mechanism.parts():
        for field in part.__dataclass_fields__:
            value = getattr(part, field)
            own = eqx.filter(value, eqx.is_inexact_array)
            if isinstance(value, pl.Marker | tuple) or field == "pose" or not jax.tree.leaves(own):
                continue
            for leaf in jax.tree.leaves(getattr(found.reverse[part.name], field)):
                assert np.abs(leaf).min() > 1e-6, f"{part.name}: {field}"


@pytest.mark.parametrize("kind", ["JOINTS", "FORCES", "SENSORS"])
def test_vmap_equals_a_loop(kind: str) -> None:
    """Three mechanisms with other numbers, states and times: one batch gives what three calls give."""
    b = bench(kind)
    arrays, static = eqx.partition(b.mechanism, eqx.is_inexact_array)
    scaled = jax.vmap(lambda s: jax.tree.map(lambda x: s * x, (arrays, b.t, b.q, b.v, b.a)))
    batch = scaled(jnp.asarray([1.0, 1.07, 0.93]))
    mapped = jax.vmap(lambda one: evaluate(eqx.combine(one[0], static), *one[1:]))(batch)
    for k in range(3):
        one = jax.tree.map(lambda x, k=k: x[k], batch)
        single = evaluate(eqx.combine(one[0], static), *one[1:])
        jax.tree.map(lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=1e-11, atol=1e-11), mapped, single)


# --- grouping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [laws.JOINTS, laws.FORCES], ids=["joints", "forces"])
def test_equal_types_are_one_group(table: Any) -> None:
    """A case on two bodies and the same case on the ground are stacked, in the order they are declared in."""
    mechanism = laws.bench(table)
    index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {"ground": len(mechanism.bodies)}
    for name in table:
        parts: list[Any] = [p for p in (*mechanism.constraints(), *mechanism.forces) if p.name.startswith(name)]
        mine: list[Any] = [p for p in parts if p.name in (name, f"{name} on ground") and getattr(p, "markers", ())]
        if name == "Driver of a body" or not mine:
            continue
        (group,) = group_parts(mine, mechanism)
        assert group.members == (0, 1)
        assert [list(row) for row in group.incidence] == [[index[m.body] for m in p.markers] for p in mine]


def test_groups_keep_the_order_of_declaration() -> None:
    """Types that alternate give two groups; rows, blocks and reactions come back in the order of the parts."""
    rng = np.random.default_rng(2)
    bodies = [pl.Body(f"b{i}", 1.0, 0.1, rng.normal(size=3)) for i in range(5)]
    joints = [
        pl.Revolute("p0", pl.ground.at(0.1, 0.2), bodies[0].at(0.3, 0.1)),
        pl.Rod("r0", bodies[0].at(), bodies[1].at(0.2), 0.7),
        pl.Revolute("p1", bodies[1].at(0.1), bodies[2].at(0.3, 0.1)),
        pl.GlobalConstraint("g", laws.fixed_bodies, jnp.asarray(0.6)),
        pl.Rod("r1", bodies[2].at(), bodies[3].at(0.2), 0.9),
        pl.Weld("w", bodies[3].at(0.1), bodies[4].at()),
    ]
    mechanism = pl.Mechanism(bodies, joints)
    equations = mbd.Equations(mechanism)
    assert [group.members for group in equations.joints] == [(0, 2), (1, 3), (4,)]
    q, t = jnp.concatenate([b.pose for b in bodies]), jnp.asarray(0.0)
    expected = [
        j.residual(t, q) if isinstance(j, pl.GlobalConstraint) else j.residual(t, mechanism.frames(j.markers, q))
        for j in joints
    ]
    phi, C, slope = jax.jit(
        lambda x: (equations.position(t, x), equations.jacobian(t, x), jax.jacfwd(equations.position, 1)(t, x))
    )(q)
    np.testing.assert_allclose(phi, np.concatenate(expected), atol=EXACT)
    np.testing.assert_allclose(C, slope, atol=EXACT)


def renamed(part: Any) -> Any:
    """A copy of a part under another name."""
    twin = object.__new__(type(part))
    for field in part.__dataclass_fields__:
        value = getattr(part, field)
        object.__setattr__(twin, field, f"{value} again" if field == "name" else value)
    return twin


def test_a_stack_of_equal_parts_is_their_sum() -> None:
    """Every force twice, on the same bodies: twice the force and energy, and no more groups than before."""
    b = bench("FORCES")
    again = tuple(map(renamed, b.mechanism.forces))
    double = pl.Mechanism(b.mechanism.bodies, b.mechanism.joints, (*b.mechanism.forces, *again), floating=True)
    at = evaluate(double, b.t, b.q, b.v, b.a)
    np.testing.assert_allclose(at.force, 2 * b.at.force, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(at.potential, 2 * b.at.potential, rtol=1e-13)
    single, twice = mbd.Equations(b.mechanism), mbd.Equations(double)
    assert len(single.forces) == len(twice.forces)
    assert len(single.coordinate_forces) == len(twice.coordinate_forces)
