"""Laws that every joint, driver, force and sensor has to keep, run over one example or more of each class, in the plane
and in space."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import laws
import laws_planar
import laws_spatial
import numpy as np
import pytest
from jaxtyping import Array
from laws import Case, base
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.output_channels import Snapshot, channel_values
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.groups import group_parts
from jaxmbd.model.joint.joint import AbstractNonholonomic

SPACES = {"planar": laws_planar.LAWS, "spatial": laws_spatial.LAWS}
KINDS = ("joints", "forces", "sensors")

EXACT = 1e-12  # the same sum in another order
DIFFERENCE = 2e-7  # central differences, relative to numbers of size 1 to 100
T = 0.37  # [s]
STEP = 1e-3  # of time [s] or a coordinate, for differences of fourth order
OFFSETS = (-2, -1, 1, 2)
FIRST, SECOND = np.asarray([1, -8, 8, -1]) / 12, np.asarray([-1, 16, 16, -1]) / 12  # and −5/2 of the middle


def case_of(space: str, name: str) -> Case:
    """The case that a part under test belongs to."""
    tables = (SPACES[space].table(kind) for kind in KINDS)
    return next(table[base(name)] for table in tables if base(name) in table)


def over(kind: str, keep: Callable[[Case], bool] = lambda case: True) -> list[Any]:
    """The parts under test of both spaces, those whose case keeps a promise."""
    found = [(space, n) for space in SPACES for n in laws.names(SPACES[space].table(kind)) if keep(case_of(space, n))]
    return [pytest.param(space, name, id=f"{space}-{name}") for space, name in found]


def constraints() -> list[Any]:
    """The joints and drivers, and the global constraints."""
    whole = [pytest.param(space, n, id=f"{space}-{n}") for space in SPACES for n in SPACES[space].globals]
    return over("joints") + whole


# --- the bench, and all that the equations say of it -----------------------------------------------------------------


def values(kind: str, mechanism: Any, t: Array, q: Array, v: Array, a: Array, lam: Array) -> dict[str, Any]:
    """Everything that the equations say of a kind at one instant."""
    equations = mbd.Equations(mechanism)
    inertia = equations.at(t, q).inertia
    found: dict[str, Any] = {"momentum": inertia.times(v), "accelerations": inertia.solve(a)}
    if kind == "joints":
        found |= {
            "phi": equations.position(t, q),
            "C": equations.jacobian(t, q),
            "velocity": equations.velocity(t, q, v),
            "gamma": equations.gamma(t, q, v),
            "reactions": equations.at(t, q).reactions(lam),
        }
    elif kind == "forces":
        energy = lambda step: equations.potential_energy(t, equations.retract(t, q, step))  # noqa: E731
        potential, slope = jax.value_and_grad(energy)(jnp.zeros_like(v))
        found |= {"force": equations.force(t, q, v), "potential": potential, "slope": slope}
    else:
        names = [sensor.name for sensor in mechanism.sensors]
        found |= {"readings": channel_values(equations, names, Snapshot(t, q, v, a, lam))}
    return found


class Bench:
    """A mechanism with the examples, a state (not fitted), and what the equations say there."""

    def __init__(self, space: str, kind: str) -> None:
        self.space, self.kind = space, kind
        self.mechanism: Any = laws.bench(SPACES[space], kind)
        self.arrays, static = eqx.partition(self.mechanism, eqx.is_inexact_array)
        rng = np.random.default_rng(8)
        poses = np.stack([body.pose for body in self.mechanism.bodies])
        # Some joint angles have whole turns behind them; those of joints that have to be fitted have none.
        turns = 2 * np.pi * (np.arange(len(self.mechanism.turns)) % 3 - 1) * (kind != "joints")
        self.turns = turns
        self.q = np.append(poses, turns)
        self.v, self.a = rng.normal(size=self.mechanism.nv), rng.normal(size=self.mechanism.nv)
        parts, sizes = self.mechanism.constraints(), self.mechanism.constraint_sizes()
        self.constraints = {part.name: part for part in parts}
        ends = np.cumsum(sizes)
        self.rows = {p.name: np.arange(e - n, e) for p, e, n in zip(parts, ends, sizes, strict=True)}
        self.lam = rng.uniform(0.5, 1.5, sum(sizes)) * rng.choice([-1, 1], sum(sizes))
        self.width = len(self.mechanism.space.speeds)

        def of(arrays: Any, t: Array, q: Array, v: Array, a: Array) -> dict[str, Any]:
            return values(kind, eqx.combine(arrays, static), t, q, v, a, jnp.asarray(self.lam))

        self.function = of
        self.compiled = jax.jit(as_program(of))
        self.at = self(T, self.q, self.v)

    def __call__(self, t: float, q: np.ndarray, v: np.ndarray, arrays: Any = None) -> dict[str, Any]:
        """What the equations say at another state, or of other numbers."""
        found = self.compiled(self.arrays if arrays is None else arrays, np.asarray(t), q, v, self.a)
        return jax.tree.map(np.asarray, found)

    def columns(self, name: str) -> np.ndarray:
        """The speeds of the bodies that belong to a part under test."""
        owned = [i for i, body in enumerate(self.mechanism.bodies) if laws.unit(body.name) == name]
        return (self.width * np.asarray(owned)[:, None] + np.arange(self.width)).reshape(-1)

    def moved(self, step: np.ndarray, q: np.ndarray | None = None) -> np.ndarray:
        """The coordinates after each body has moved by a step and turned by a vector in its own axes: exactly."""
        poses, steps = np.split(self.q if q is None else q, [len(self.q) - len(self.turns)])[0], step
        poses, steps = poses.reshape(-1, 7 if self.width == 6 else 3), steps.reshape(-1, self.width)
        if self.space == "planar":
            return (poses + steps).reshape(-1)
        turned = _multiply(poses[:, 3:], _exponential(steps[:, 3:]))
        return np.append(np.concatenate([poses[:, :3] + steps[:, :3], turned], axis=1), self.turns)

    def along(self, s: float) -> tuple[float, np.ndarray, np.ndarray]:
        """A motion through the bench's state, with its speeds and accelerations: time, coordinates and speeds."""
        return T + s, self.moved(s * self.v + 0.5 * s * s * self.a), self.v + s * self.a

    def places(self, markers: Any, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions and axes of markers in the world."""
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        size = 7 if self.space == "spatial" else 3
        found = []
        for marker in markers:
            i = index.get(marker.body)
            pose = np.asarray(self.mechanism.space.rest) if i is None else q[size * i : size * (i + 1)]
            found.append(_place(pose, marker))
        return np.stack([p for p, _ in found]), np.stack([R for _, R in found])

    def speeds(self, markers: Any, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Velocities of markers and angular velocities of their bodies, in world axes."""
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        where, _ = self.places(markers, q)
        size, found = len(q) // len(index) if self.space == "planar" else 7, []
        for marker, place in zip(markers, where, strict=True):
            if marker.body not in index:
                found.append(np.zeros(self.width))
                continue
            i = index[marker.body]
            pose, twist = q[size * i : size * (i + 1)], v[self.width * i : self.width * (i + 1)]
            if self.space == "planar":
                arm = place - pose[:2]
                found.append([twist[0] - twist[2] * arm[1], twist[1] + twist[2] * arm[0], twist[2]])
            else:
                omega = _matrix(pose[3:]) @ twist[3:]
                found.append(np.append(twist[:3] + np.cross(omega, place - pose[:3]), omega))
        return np.asarray(found)

    def at_markers(self, markers: Any, q: np.ndarray, v: np.ndarray) -> tuple[Any, Any]:
        """Frames and rates of markers as laws see them."""
        (where, axes), speeds = self.places(markers, q), self.speeds(markers, q, v)
        if self.space == "spatial":
            frames = [sp.Frame(jnp.asarray(p), jnp.asarray(R)) for p, R in zip(where, axes, strict=True)]
            return frames, [sp.Rate(jnp.asarray(s[:3]), jnp.asarray(s[3:])) for s in speeds]
        angles = [jnp.asarray(a) for a in self._angles(markers, q)]
        frames = [pl.Frame(jnp.asarray(p), angle) for p, angle in zip(where, angles, strict=True)]
        return frames, [pl.Frame(jnp.asarray(s[:2]), jnp.asarray(s[2])) for s in speeds]

    def _angles(self, markers: Any, q: np.ndarray) -> list[float]:
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        return [(q[3 * index[m.body] + 2] if m.body in index else 0.0) + float(m.angle) for m in markers]


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of quaternions, `(n, 4)`."""
    scalar = a[:, :1] * b[:, :1] - np.sum(a[:, 1:] * b[:, 1:], axis=1, keepdims=True)
    return np.concatenate([scalar, a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])], axis=1)


def _exponential(theta: np.ndarray) -> np.ndarray:
    """Quaternions of rotation vectors, `(n, 3)`."""
    half = np.linalg.norm(theta, axis=1, keepdims=True) / 2
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * theta], axis=1)


def _matrix(e: np.ndarray) -> np.ndarray:
    """The rotation matrix of Euler parameters (Shabana's `E Gᵀ`)."""
    w, x, y, z = e / np.linalg.norm(e)
    E = np.asarray([[-x, w, -z, y], [-y, z, w, -x], [-z, -y, x, w]])
    G = np.asarray([[-x, w, z, -y], [-y, -z, w, x], [-z, y, -x, w]])
    return E @ G.T


def _place(pose: np.ndarray, marker: Any) -> tuple[np.ndarray, np.ndarray]:
    """A marker's position and axes in the world."""
    if len(pose) == 7:
        R = _matrix(pose[3:])
        return pose[:3] + R @ np.asarray(marker.position), R @ _matrix(np.asarray(marker.rotation))
    body, frame = (np.asarray([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (pose[2], marker.angle))
    return pose[:2] + body @ np.asarray(marker.position), body @ frame


def cross(r: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Moments of forces, `(n, dim)`: `(n, 1)` in the plane."""
    return (r[:, :1] * f[:, 1:] - r[:, 1:] * f[:, :1]) if r.shape[1] == 2 else np.cross(r, f)


def resultant(wrenches: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The sum of wrenches, moments about the world's origin."""
    dim = places.shape[1]
    forces, moments = wrenches[:, :dim], wrenches[:, dim:]
    return np.append(forces.sum(axis=0), (moments + cross(places, forces)).sum(axis=0))


bench = cache(Bench)


@cache
def stencil(space: str, kind: str) -> dict[str, Any]:
    """What the equations say at four instants along the bench's motion."""
    b = bench(space, kind)
    return jax.tree.map(lambda *x: np.stack(x), *(b(*b.along(k * STEP)) for k in OFFSETS))


@pytest.mark.parametrize("space", SPACES)
def test_every_public_part_is_registered(space: str) -> None:
    """A new class has to come with an example here."""
    module = SPACES[space].space
    apart = {
        module.Body,
        module.Marker,
        module.MovingMarker,
        module.Mechanism,
        module.Frame,
        getattr(module, "Rate", None),
    }
    apart |= {getattr(module, "Solid", None), module.GeneralizedSpeeds}
    classes = {value for value in vars(module).values() if inspect.isclass(value)}
    public = {value for value in classes if not inspect.isabstract(value)}
    assert public - apart == SPACES[space].registered


# --- joints and drivers ----------------------------------------------------------------------------------------------


def rolls(b: Bench) -> np.ndarray:
    """Which rows constrain velocities alone."""
    found = np.zeros(len(b.lam), dtype=bool)
    for name, part in b.constraints.items():
        if isinstance(part, AbstractNonholonomic):
            frames, _ = b.at_markers(part.markers, b.q, b.v)
            found[b.rows[name][part.residual(jnp.asarray(T), frames).shape[0] :]] = True
    return found


class Fitted(NamedTuple):
    """A fitted state, random speeds that all rows allow at rest, and what the equations say there."""

    q: np.ndarray
    v: np.ndarray
    allowed: np.ndarray
    at: dict[str, Any]


@cache
def fitted(space: str) -> Fitted:
    """The bench of joints, fitted by Gauss-Newton steps of least norm; its time is not zero, so that moving
    constraints are at work."""
    b = bench(space, "joints")
    q, still, held = b.q, np.zeros(len(b.v)), ~rolls(b)
    at = b(T, q, still)
    for _ in range(100):
        if np.abs(at["phi"]).max() < 1e-12:
            break
        step = -np.linalg.pinv(at["C"][held], rcond=1e-8) @ at["phi"][held]
        q = b.moved(step * min(1.0, 0.5 / np.abs(step).max()), q)
        at = b(T, q, still)
    C, inverse = at["C"], np.linalg.pinv(at["C"], rcond=1e-8)
    v = -inverse @ at["velocity"]
    free = np.random.default_rng(3).normal(size=len(v))
    return Fitted(q, v, free - inverse @ (C @ free), b(T, q, v))


@pytest.mark.parametrize(("space", "name"), constraints())
def test_fitted_joint_is_fitted(space: str, name: str) -> None:
    """`Φ = 0` and `Φ̇ = 0` can be reached, and do not hold before."""
    b, found = bench(space, "joints"), fitted(space).at
    rows = b.rows[name]
    assert max(np.abs(b.at["phi"][rows]).max(), np.abs(b.at["velocity"][rows]).max()) > 1e-3
    assert np.all((np.abs(b.at["phi"]) == 0) == rolls(b))
    np.testing.assert_allclose(found["phi"][rows], 0.0, atol=1e-10)
    np.testing.assert_allclose(found["velocity"][rows], 0.0, atol=1e-10)


@cache
def jacobian(space: str) -> np.ndarray:
    """`C` by differences: of `Φ` along the speeds of one body of each part at a time (no row touches bodies of two
    parts), and of `Ψ` by these speeds."""
    b = bench(space, "joints")
    owned = [b.columns(name) for name in laws.names(SPACES[space].joints)]
    unit = np.zeros(len(b.lam), dtype=int)
    for k, name in enumerate(laws.names(SPACES[space].joints)):
        for part, rows in b.rows.items():
            if laws.unit(part) == name:
                unit[rows] = k
    found, rolling = np.zeros_like(b.at["C"]), rolls(b)
    for j in range(max(map(len, owned))):
        column = np.asarray([own[j] if j < len(own) else -1 for own in owned], dtype=int)
        step = np.zeros(len(b.v))
        step[column[column >= 0]] = STEP
        at = np.stack([b(T, b.moved(k * step), b.v)["phi"] for k in OFFSETS])
        slope = np.tensordot(FIRST, at, 1) / STEP
        slip = (b(T, b.q, b.v + step)["velocity"] - b.at["velocity"]) / STEP
        rows = np.flatnonzero(column[unit] >= 0)
        found[rows, column[unit[rows]]] = np.where(rolling, slip, slope)[rows]
    return found


@pytest.mark.parametrize(("space", "name"), constraints())
def test_derivatives_of_constraints_are_those_of_phi(space: str, name: str) -> None:
    """`C`, `Φ̇ = C v + Φ_t` and `Φ̈ = C v̇ − γ` against differences of `Φ` along a motion; of `Ψ` likewise."""
    b, at, near, rows = bench(space, "joints"), bench(space, "joints").at, stencil(space, "joints"), None
    rows = b.rows[name]
    assert np.abs(at["C"][rows]).max() > 0.05
    if name in SPACES[space].globals:  # these reach over parts: `C v` alone
        still = b(T, b.q, 0 * b.v)["velocity"]
        np.testing.assert_allclose(at["C"][rows] @ b.v, (at["velocity"] - still)[rows], atol=EXACT)
    else:
        np.testing.assert_allclose(at["C"][rows], jacobian(space)[rows], atol=1e-8)
    rolling = rolls(b)[rows]
    first = np.tensordot(FIRST, near["phi"], 1) / STEP
    second = (np.tensordot(SECOND, near["phi"], 1) - 2.5 * at["phi"]) / STEP**2
    slipping = np.tensordot(FIRST, near["velocity"], 1) / STEP
    np.testing.assert_allclose(at["velocity"][rows][~rolling], first[rows][~rolling], atol=1e-8)
    expected = np.where(rolling, slipping[rows], second[rows])
    np.testing.assert_allclose(at["C"][rows] @ b.a - at["gamma"][rows], expected, atol=3e-7)


@pytest.mark.parametrize(("space", "name"), over("joints"))
def test_rows_are_those_of_the_law_and_in_their_place(space: str, name: str) -> None:
    """Grouping: a joint's rows are its own residual (and slip), and touch its own bodies only."""
    b = bench(space, "joints")
    part: Any = b.constraints[name]
    frames, rates = b.at_markers(part.markers, b.q, b.v)
    residual = part.residual(jnp.asarray(T), frames)
    count = len(residual)
    np.testing.assert_allclose(b.at["phi"][b.rows[name]][:count], residual, atol=EXACT)
    if isinstance(part, AbstractNonholonomic):
        slip = part.slip(jnp.asarray(T), frames, rates)
        assert len(slip) > 0
        np.testing.assert_allclose(b.at["velocity"][b.rows[name]][count:], slip, atol=EXACT)
    others = np.delete(b.at["C"][b.rows[name]], b.columns(name), axis=1)
    np.testing.assert_array_equal(others, 0.0)


@cache
def reactions(space: str) -> dict[str, np.ndarray]:
    """At the fitted state: the wrenches at each joint's markers that random multipliers make."""
    b, at = bench(space, "joints"), fitted(space).at
    local = [part for part in b.constraints.values() if not isinstance(part, SPACES[space].space.GlobalConstraint)]
    groups = mbd.Equations(b.mechanism).parts.joints
    pairs = [pair for g, w in zip(groups, at["reactions"], strict=True) for pair in zip(g.members, w, strict=True)]
    return {local[member].name: wrenches for member, wrenches in pairs}


@pytest.mark.parametrize(("space", "name"), over("joints", lambda case: not case.moves))
def test_ideal_joint_does_no_work(space: str, name: str) -> None:
    """On speeds that the joints allow, the power of a joint's wrenches at its markers is zero; on others it is `−λᵀ C
    v`."""
    b, state, wrenches = bench(space, "joints"), fitted(space), reactions(space)[name]
    markers = b.constraints[name].markers
    speeds = b.speeds(markers, state.q, state.allowed)
    free = len(b.columns(name)) > sum(len(rows) for part, rows in b.rows.items() if laws.unit(part) == name)
    assert np.abs(speeds).max() > 0.05 or not free
    assert np.abs(wrenches).max() > 0.05
    np.testing.assert_allclose((wrenches * speeds).sum(), 0.0, atol=1e-9)
    power = (wrenches * b.speeds(markers, state.q, b.v)).sum()
    expected = -b.lam[b.rows[name]] @ (state.at["C"][b.rows[name]] @ b.v)
    np.testing.assert_allclose(power, expected, atol=1e-11)
    assert abs(power) > 1e-4


@pytest.mark.parametrize(("space", "name"), over("joints", lambda case: case.pair))
def test_reaction_equals_action(space: str, name: str) -> None:
    """What a joint does to its bodies (the ground and a gear's carrier included) has no resultant."""
    b, wrenches = bench(space, "joints"), reactions(space)[name]
    where, _ = b.places(b.constraints[name].markers, fitted(space).q)
    assert np.abs(wrenches).max() > 0.05
    np.testing.assert_allclose(resultant(wrenches, where), 0.0, atol=1e-10)


@pytest.mark.parametrize("space", SPACES)
def test_only_moving_constraints_need_speed(space: str) -> None:
    """The other side of the laws above: which rows are not zero at rest."""
    b = bench(space, "joints")
    at_rest = b(T, b.q, 0 * b.v)["velocity"]
    for name, rows in b.rows.items():
        if not name.endswith("helper"):
            needs = np.abs(at_rest[rows]).max() > 1e-3
            moves = "moving" in name if name in SPACES[space].globals else case_of(space, name).moves
            assert needs == moves, name


# --- forces ----------------------------------------------------------------------------------------------------------


def to_centre(b: Bench, marker: Any, place: np.ndarray, wrench: np.ndarray) -> np.ndarray:
    """The generalized force of a wrench at a marker, on its body."""
    i = [body.name for body in b.mechanism.bodies].index(marker.body)
    if b.space == "planar":
        pose = b.q[3 * i : 3 * i + 3]
        return np.append(wrench[:2], wrench[2:] + cross((place - pose[:2])[None], wrench[None, :2])[0])
    pose = b.q[7 * i : 7 * i + 7]
    moment = wrench[3:] + np.cross(place - pose[:3], wrench[:3])
    return np.append(wrench[:3], _matrix(pose[3:]).T @ moment)


def along_coordinate(b: Bench, part: Any, columns: np.ndarray) -> np.ndarray:
    """The generalized force of a law along a joint's coordinate: the coordinate's slope, by differences, times it."""
    c = b.mechanism.coordinate(part.coordinate)
    near = float(b.turns[b.mechanism.turns.index(c.name)]) if c.unwrapped else None
    steps = [(j, k) for j in columns for k in OFFSETS]
    many = [b.at_markers(c.markers, b.moved(k * STEP * (np.arange(len(b.v)) == j)), b.v)[0] for j, k in steps]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *many, b.at_markers(c.markers, b.q, b.v)[0])
    value = np.asarray(jax.vmap(lambda frames: c.joint.motion(frames)[c.index])(stacked))
    if near is not None:
        value = value + 2 * np.pi * np.round((near - value) / (2 * np.pi))
    slope = value[:-1].reshape(-1, 4) @ FIRST / STEP
    return slope * float(part.effort(*(jnp.asarray(x) for x in (T, value[-1], slope @ b.v[columns]))))


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
        np.testing.assert_allclose(total, along_coordinate(b, part, columns), rtol=1e-9, atol=1e-9)
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
        moments = np.stack([_matrix(p[3:]) @ m for p, m in zip(poses, moments, strict=True)])
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


# --- sensors ---------------------------------------------------------------------------------------------------------


def turning(R: np.ndarray, dim: int) -> np.ndarray:
    """The vector (number in the plane) of a skew matrix."""
    return R[1, 0] if dim == 2 else np.asarray([R[2, 1], R[0, 2], R[1, 0]])


def is_of_markers(case: Case) -> bool:
    """Whether a sensor reads markers, and nothing else."""
    return case.part not in (pl.Measure, sp.Measure, pl.Scaled)


@pytest.mark.parametrize(("space", "name"), over("sensors", is_of_markers))
def test_sensor_reads_the_motion_of_its_marker(space: str, name: str) -> None:
    """Against the marker's position and axes and their differences along a motion."""
    b = bench(space, "sensors")
    part, dim = b.mechanism[name], b.mechanism.space.dim
    many = [b.places(part.markers, b.along(k * STEP)[1]) for k in OFFSETS]
    where, axes = b.places(part.markers, b.q)
    last, R = where[-1], axes[-1]
    velocity, rate = (np.tensordot(FIRST, np.stack([x[i][-1] for x in many]), 1) / STEP for i in (0, 1))
    acceleration, change = (
        (np.tensordot(SECOND, np.stack([x[i][-1] for x in many]), 1) - 2.5 * now) / STEP**2
        for i, now in ((0, last), (1, R))
    )
    gravity = np.asarray(SPACES[space].gravity.acceleration)
    normals = axes[:, :, -1]
    expected = {
        "Point": last,
        "PointVelocity": velocity,
        "PointAcceleration": acceleration,
        "AngularVelocity": turning(rate @ R.T, dim),
        "AngularAcceleration": turning(0.5 * (change @ R.T - R @ change.T), dim),
        "Accelerometer": R.T @ (acceleration - gravity),
        "Gyroscope": np.atleast_1d(turning(R.T @ rate, dim)),
        "Distance": np.linalg.norm(last - where[0]),
        "Angle": np.arccos(np.clip(normals[0] @ normals[-1], -1, 1)),
    }
    if base(name).startswith("EulerAngle"):
        turned = Rotation.from_matrix(axes[0].T @ R)
        expected[base(name)] = turned.as_euler(part.sequence.upper())[part.which - 1]
    expected = expected[base(name)]
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(b.at["readings"][name], expected, atol=3e-8)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("name", "scale"), [("Scaled", -1.5), ("Scaled on ground", -1.95)])
def test_scaled_is_what_it_says_of_the_sensor(space: str, name: str, scale: float) -> None:
    readings = bench(space, "sensors").at["readings"]
    np.testing.assert_allclose(readings[name], scale * readings[f"{name} helper"] + 0.2, rtol=1e-13)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(("name", "scale"), [("Measure", 1.5), ("Measure on ground", 1.95)])
def test_measure_is_what_its_function_says(space: str, name: str, scale: float) -> None:
    b = bench(space, "sensors")
    expected = scale * b.v.sum() + b.q[: len(b.v)] @ b.a + T
    np.testing.assert_allclose(b.at["readings"][name], expected, rtol=1e-13)


# --- parameters ------------------------------------------------------------------------------------------------------


class Slopes(NamedTuple):
    """Of one number for each unit, made of all that the equations say of it: its derivatives by every parameter of the
    unit, two ways, `(path, reverse, difference)`."""

    found: dict[str, list[tuple[str, np.ndarray, np.ndarray]]]


# `velocity` holds `C` and `reactions` are made of it; the potential has its slope among the numbers.
WITHOUT = ("C", "reactions", "potential")


def weights(b: Bench) -> dict[str, Any]:
    """A random weight for each number that the equations give."""
    rng = np.random.default_rng(11)
    kept = {key: value for key, value in b.at.items() if key not in WITHOUT}
    return jax.tree.map(lambda x: rng.normal(size=x.shape), kept)


def shares(b: Bench, units: list[str]) -> dict[str, Any]:
    """Which unit each row of the numbers belongs to; a constraint on all coordinates has no bodies."""
    number = {name: k for k, name in enumerate(units)}
    by_row = np.full(len(b.lam), -1)
    for name, rows in b.rows.items():
        by_row[rows] = number[laws.unit(name)]
    by_body = [number[laws.unit(body.name)] for body in b.mechanism.bodies]
    by_speed = np.repeat(by_body, b.width)
    places = {len(by_row): by_row} | {len(by_speed): by_speed}
    kept = {key: value for key, value in b.at.items() if key not in (*WITHOUT, "readings")}
    found: dict[str, Any] = {key: by_row if key in ("phi", "velocity", "gamma") else by_speed for key in kept}
    assert all(len(x) in places for x in kept.values())
    return found | (
        {"readings": {name: number[laws.unit(name)] for name in b.at["readings"]}} if "readings" in b.at else {}
    )


@cache
def slopes(space: str, kind: str) -> Slopes:
    b = bench(space, kind)
    w = weights(b)
    units = list(dict.fromkeys(laws.unit(part.name) for part in b.mechanism.parts()))
    share = shares(b, units)

    def number(arrays: Any, *at: Array) -> Array:
        found = b.function(arrays, *at)
        terms = jax.tree.map(lambda w, x: jnp.sum(w * x), w, {key: found[key] for key in w})
        return sum(jax.tree.leaves(terms), jnp.zeros(()))

    def by_unit(arrays: Any) -> np.ndarray:
        found, total = b(T, b.q, b.v, arrays), np.zeros(len(units))
        for key, weight in w.items():
            if key == "readings":
                for name, x in found[key].items():
                    total[share[key][name]] += np.sum(weight[name] * x)
            else:
                np.add.at(total, share[key], weight * found[key])
        return total

    reverse = jax.jit(jax.grad(as_program(number)))(b.arrays, *map(jnp.asarray, (T, b.q, b.v, b.a)))
    # The leaves of each unit; the k-th number of all of them is changed at once, since no unit feels another.
    index = {id(part): laws.unit(part.name) for part in b.mechanism.parts()}
    paths, tree = jax.tree_util.tree_flatten_with_path(b.arrays)
    owner, labels = [], []
    for path, _ in paths:
        part = getattr(b.mechanism, path[0].name)[path[1].idx]
        owner.append(index[id(part)])
        labels.append(f"{part.name}{jax.tree_util.keystr(path[2:])}")
    held = [leaf for _, leaf in paths]
    leaves = [np.asarray(leaf) for leaf in held]
    counts = dict.fromkeys(units, 0)
    slots: list[list[tuple[int, Any]]] = []
    for i, leaf in enumerate(leaves):
        if labels[i].endswith(".pose") or owner[i] == SPACES[space].gravity.name:  # felt by nobody, by several
            continue
        for place in np.ndindex(leaf.shape):
            k = counts[owner[i]]
            counts[owner[i]] += 1
            if k == len(slots):
                slots.append([])
            slots[k].append((i, place))
    differences = [np.zeros_like(leaf) for leaf in leaves]
    for slot in slots:
        at = []
        for offset in OFFSETS:
            changed = list(held)
            for i, place in slot:
                changed[i] = leaves[i].copy()
                changed[i][place] += offset * STEP
            at.append(by_unit(jax.tree.unflatten(tree, changed)))
        slope = np.tensordot(FIRST, np.stack(at), 1) / STEP
        for i, place in slot:
            differences[i][place] = slope[units.index(owner[i])]
    found: dict[str, list[Any]] = {name: [] for name in units}
    for i, exact in enumerate(jax.tree.leaves(reverse)):
        found[owner[i]].append((labels[i], np.asarray(exact), differences[i]))
    return Slopes(found)


@pytest.mark.parametrize(
    ("kind", "space", "name"), [pytest.param(k, *p.values, id=f"{k}-{p.id}") for k in KINDS for p in over(k)]
)
def test_gradient_with_respect_to_every_parameter(kind: str, space: str, name: str) -> None:
    """Of all rows, forces, slopes and readings together: reverse mode against differences, part by part."""
    found = slopes(space, kind).found[name]
    assert found
    for label, exact, estimate in found:
        np.testing.assert_allclose(exact, estimate, rtol=DIFFERENCE, atol=DIFFERENCE, err_msg=label)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", ["joints", "forces"])
def test_no_parameter_is_dead(space: str, kind: str) -> None:
    """Each number of a part, its markers apart, and each body's inertia, changes something; one said to be idle does
    not."""
    markers = {"a", "b", "at", "on", "from_", "plane", "point", "carrier", "pose"}
    seen = 0
    for name, found in slopes(space, kind).found.items():
        idle = () if name in SPACES[space].globals else case_of(space, name).idle
        for label, exact, _ in found:
            field = label.replace(name, "").replace(" helper", "").split(".")[1].split("[")[0]
            if ("/" not in label and field in markers) or field == "pose":
                continue
            seen += 1
            if field in idle:
                np.testing.assert_array_equal(exact, 0.0)
            else:
                assert np.abs(exact).min() > 1e-6, label
    assert seen > len(SPACES[space].table(kind))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", KINDS)
def test_vmap_equals_a_loop(space: str, kind: str) -> None:
    """Three mechanisms with other numbers, states and times: one batch gives what three calls give."""
    b = bench(space, kind)
    scales = (1.0, 1.07, 0.93)
    batch = [jax.tree.map(lambda x, s=s: s * np.asarray(x), (b.arrays, np.asarray(T), b.q, b.v)) for s in scales]
    stacked = jax.tree.map(lambda *x: np.stack(x), *batch)
    kept = ("phi", "C", "velocity") if kind == "joints" else tuple(b.at)  # the rest takes long to compile

    def some(arrays: Any, t: Array, q: Array, v: Array, a: Array) -> dict[str, Any]:
        return {key: value for key, value in b.function(arrays, t, q, v, a).items() if key in kept}

    of = jax.jit(jax.vmap(some, (0, 0, 0, 0, None)))
    mapped = jax.tree.map(np.asarray, of(*stacked, b.a))
    for k, (arrays, *state) in enumerate(batch):
        t, q, v = state
        single = {key: value for key, value in b(t, q, v, arrays).items() if key in kept}
        jax.tree.map(lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=1e-11, atol=1e-11), mapped, single)


# --- grouping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("kind", ["joints", "forces"])
def test_equal_types_are_one_group(space: str, kind: str) -> None:
    """A case on two bodies and the same case on the ground are stacked, in the order they are declared in."""
    mechanism = bench(space, kind).mechanism
    index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {"ground": len(mechanism.bodies)}
    for name in SPACES[space].table(kind):
        parts: list[Any] = [*mechanism.constraints(), *mechanism.forces]
        mine = [p for p in parts if p.name in (name, f"{name} on ground") and getattr(p, "markers", ())]
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
        pl.GlobalConstraint("g", laws_planar.fixed_bodies, jnp.asarray(0.6)),
        pl.Rod("r1", bodies[2].at(), bodies[3].at(0.2), 0.9),
        pl.Weld("w", bodies[3].at(0.1), bodies[4].at()),
    ]
    mechanism = pl.Mechanism(bodies, joints)
    equations = mbd.Equations(mechanism)
    assert [group.members for group in equations.parts.joints] == [(0, 2), (1, 3), (4,)]
    q, t = jnp.concatenate([b.pose for b in bodies]), jnp.asarray(0.0)
    expected = [
        j.residual(t, q)
        if isinstance(j, pl.GlobalConstraint)
        else j.residual(t, equations.at(t, q).near(j.markers).frames)
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
    b = bench("planar", "forces")
    again = tuple(map(renamed, b.mechanism.forces))
    double = pl.Mechanism(b.mechanism.bodies, b.mechanism.joints, (*b.mechanism.forces, *again), floating=True)
    single, twice = mbd.Equations(b.mechanism), mbd.Equations(double)
    at = eqx.filter_jit(values)("forces", double, *map(jnp.asarray, (T, b.q, b.v, b.a, b.lam)))
    np.testing.assert_allclose(at["force"], 2 * b.at["force"], rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(at["potential"], 2 * b.at["potential"], rtol=1e-13)
    assert len(single.parts.forces) == len(twice.parts.forces)
    assert len(single.parts.coordinate_forces) == len(twice.parts.coordinate_forces)
