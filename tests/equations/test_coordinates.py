"""Joint coordinates: the same mechanisms as in absolute ones, described by a spanning tree of their joints."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.tree_coordinates import TreePaths
from jaxmbd.extend import check_tree_joint
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.space import rotation as rot
from jaxmbd.state.output_channels import Snapshot, channel_values
from tests import spatial_examples
from tests.marks import slow_but
from tests.planar_examples import ALL

SAME = 1e-7  # relative, what both coordinates may differ by
KEPT = (
    "pendulum", "four_bars_2", "slider_crank", "heavy_top", "bricard", "universal_1", "cylindrical_1",
)  # fmt: skip
T = 0.3  # [s]

SPATIAL: dict[str, Any] = {
    "heavy_top": spatial_examples.heavy_top,
    "modelica_spatial_four_bar": spatial_examples.modelica_spatial_four_bar,
    "bricard": spatial_examples.bricard,
    "governor": spatial_examples.governor,
    **{case: partial(spatial_examples.adams, case) for case in spatial_examples.ADAMS},
}


@partial(jax.jit, static_argnums=0)
def instant(static: Any, arrays: Any, q: Array, v: Array, step: Array) -> dict[str, Any]:
    """All that can be read of a mechanism at one instant, and what is needed to get to a consistent one."""
    mechanism = eqx.combine(arrays, static)
    t = jnp.asarray(T)
    equations = mbd.Equations(mechanism)
    at = equations.at(t, q)
    motion = mbd.Augmented(0, 0).motion(equations, t, q, v)
    names = [name for name in mbd_names(mechanism) if not name.endswith("lambda")]
    return {
        "start": equations.coordinates.measured(jnp.stack([body.pose for body in mechanism.bodies])),
        "phi": at.position(),
        "C": at.jacobian,
        "phi_dot": at.velocity(v),
        "moved": at.perturbed(step),
        "poses": at.poses(),
        "twists": at.twists(v),
        "readings": channel_values(equations, names, Snapshot(t, q, v, motion.vdot, motion.lam)),
    }


def mbd_names(mechanism: Any) -> tuple[str, ...]:
    """Everything that can be read from a motion of the mechanism."""
    return tuple(channel_units(mechanism))


class Bench:
    """A mechanism whose equations are evaluated at given states."""

    def __init__(self, mechanism: Any) -> None:
        self.mechanism = mechanism
        self.arrays, self.static = eqx.partition(mechanism, eqx.is_array)

    def __call__(self, q: Any, v: Any = None, step: Any = None) -> dict[str, Any]:
        zero = np.zeros(self.mechanism.nv)
        found = instant(
            self.static, self.arrays, np.asarray(q), zero if v is None else v, zero if step is None else step
        )
        return jax.tree.map(np.asarray, found)

    def consistent(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A position near that of the bodies' poses, and random speeds, both without violation."""
        turns = np.zeros(len(self.mechanism.turns))
        rest = np.asarray([0.5] * (self.mechanism.nq - len(turns)))
        q = np.append(self(np.append(rest, turns))["start"], turns)
        for _ in range(6):
            now = self(q)
            q = self(q, step=-np.linalg.pinv(now["C"], rcond=1e-9) @ now["phi"])["moved"]
        v = rng.normal(size=self.mechanism.nv)
        now = self(q, v)
        assert np.abs(now["phi"]).max(initial=0) < 1e-12
        return q, v - np.linalg.pinv(now["C"], rcond=1e-9) @ now["phi_dot"]


def example_of(name: str) -> Any:
    found = {**ALL, **SPATIAL}[name]()
    return found if isinstance(found, sp.Mechanism) else found.mechanism


@pytest.mark.parametrize("name", slow_but(KEPT, [*ALL, *SPATIAL]))
def test_both_coordinates_say_the_same_of_one_state(name: str, rng: np.random.Generator) -> None:
    """Positions, velocities, accelerations, reactions, sensors, energies: everything that can be read by name."""
    mechanism = example_of(name)
    joint, absolute = Bench(mechanism.with_coordinates("joint")), Bench(mechanism)
    assert joint.mechanism.nv <= absolute.mechanism.nv
    q, v = joint.consistent(rng)
    mine = joint(q, v)
    turns = [mine["readings"][angle] for angle in absolute.mechanism.turns]
    theirs = absolute(np.append(mine["poses"].reshape(-1), turns), mine["twists"].reshape(-1))
    assert np.abs(theirs["phi"]).max(initial=0) < 1e-11
    assert np.abs(theirs["phi_dot"]).max(initial=0) < 1e-10
    shared = [n for n in theirs["readings"] if n in mine["readings"] and not _indeterminate(name, n)]
    assert len(shared) > 10
    for reading in shared:
        a, b = mine["readings"][reading], theirs["readings"][reading]
        scale = max(np.abs(b).max(), _scale(theirs["readings"], reading))
        np.testing.assert_allclose(a, b, atol=SAME * scale, rtol=SAME, err_msg=reading)


def _indeterminate(example: str, reading: str) -> bool:
    """Bricard's joints repeat one constraint: their reactions are a choice, and that of least norm is another one."""
    return example == "bricard" and reading.split(".")[-1] in ("fx", "fy", "fz", "mx", "my", "mz")


def _scale(readings: dict[str, np.ndarray], reading: str) -> float:
    """The largest reading of the same kind: what rounding errors are measured by."""
    kind = reading.split(".")[-1]
    return max(1.0, *(float(np.abs(value).max()) for name, value in readings.items() if name.split(".")[-1] == kind))


# --- the joints' models ---------------------------------------------------------------------------


def _tree_joints() -> dict[str, AbstractTreeJoint]:
    a, b = pl.ground.at(0.1, 0.2, 0.3), pl.Body("b", 1, 1).at(0.3, -0.1, 0.5)
    planar = [pl.Revolute("Revolute", a, b), pl.Prismatic("Prismatic", a, b), pl.PinInSlot("PinInSlot", a, b)]
    first = sp.ground.at(0.1, 0.2, 0.3, axis=(1, 2, 3))
    second = sp.Body("b", 1, (1, 1, 1)).at(0.3, -0.1, 0.2, axis=(1, -2, 0.5))
    kinds = (sp.Revolute, sp.Prismatic, sp.Cylindrical, sp.Planar, sp.Universal, sp.Spherical, sp.Weld)
    spatial = [kind(kind.__name__, first, second) for kind in kinds] + [sp.Screw("Screw", first, second, 0.1)]
    return {**{f"planar {j.name}": j for j in [*planar, pl.Weld("Weld", a, b)]}, **{j.name: j for j in spatial}}


TREE_JOINTS = _tree_joints()


@pytest.mark.parametrize("name", TREE_JOINTS)
def test_a_joint_of_the_tree_places_its_marker_as_it_asks(name: str, rng: np.random.Generator) -> None:
    """The placement is fitted, its coordinates are measured back, and its rate is its derivative."""
    joint = TREE_JOINTS[name]
    space = joint.a.space
    c = jnp.asarray(rng.uniform(0.2, 1.2, len(joint.tree_coordinate_units)))
    c = joint.chart.normalize(c)
    w = jnp.asarray(rng.normal(size=len(joint.speeds)))
    first = joint.a.frame(space.place(jnp.asarray(space.rest)))
    frames = (first, first.compose(joint.X_FM(c)))
    np.testing.assert_allclose(joint.residual(jnp.asarray(0.0), frames), 0, atol=1e-14)
    np.testing.assert_allclose(joint.measure(frames), c, atol=1e-13)
    here, change = jax.jvp(joint.X_FM, (c,), (joint.chart.rate(c, w),))
    rate = joint.across_joint_velocity(c, w)
    np.testing.assert_allclose(rate[: space.dim], change.position, atol=1e-14)
    if space.dim == 2:
        np.testing.assert_allclose(rate[2], change.angle, atol=1e-14)
    else:
        spun = jnp.cross(rate[3:], here.rotation.T).T  # ω × each axis
        np.testing.assert_allclose(change.rotation, spun, atol=1e-14)
    check_tree_joint(joint, c)


LOADED = {name: joint for name, joint in TREE_JOINTS.items() if joint.loads}


@pytest.mark.parametrize("name", LOADED)
def test_loads_are_what_their_names_say(name: str, rng: np.random.Generator) -> None:
    """The wrench of a unit multiplier on the second body, in the axes that the name means."""
    joint = LOADED[name]
    space = joint.a.space
    c = joint.chart.normalize(jnp.asarray(rng.uniform(0.2, 1.2, len(joint.tree_coordinate_units))))
    first = joint.a.frame(space.place(jnp.asarray(space.rest)))
    second = first.compose(joint.X_FM(c))
    still = jnp.zeros(len(space.speeds))
    slopes = jax.jacfwd(lambda step: joint.residual(jnp.asarray(0.0), (first, second.perturbed(step))))(still)
    loads = joint.plane_loads if space.dim == 2 and joint.plane_loads else joint.loads
    assert len(loads) == len(slopes)
    for load, slope in zip(loads, slopes, strict=True):
        wrench = -slope if not load.startswith("-") else slope
        force, moment = wrench[: space.dim], wrench[space.dim :]
        if load.removeprefix("-") == "M" and space.dim == 3:
            np.testing.assert_allclose(jnp.linalg.norm(moment), 1, atol=1e-12)
            continue
        coincide = name.split()[-1] in ("Revolute", "Spherical", "Universal", "Weld")
        local = force if coincide else first.to_local(force)
        turn = moment if space.dim == 2 else first.to_local(moment)
        kind, axis = load.removeprefix("-")[0], load[-1]
        index = {"x": 0, "y": 1, "z": 2, "n": 1, "M": 0}[axis]
        np.testing.assert_allclose((local if kind == "F" else turn)[index], 1, atol=1e-12, err_msg=load)
        others = np.delete(local if kind == "F" else turn, index)
        np.testing.assert_allclose(others, 0, atol=1e-12, err_msg=load)


# --- pendulum, spring and four-bar ----------------------------------------------------------------


def test_pendulum_spring_with_a_four_bar_reaches_both_closures() -> None:
    mechanism = examples.pendulum_with_four_bar().mechanism
    start = {"q1.angle": 1.0, "q2.displacement": 0.2}
    states = [
        mbd.assemble(mechanism, start, guess={"crank pin.angle": crank, "rod pin.angle": bar})
        for crank, bar in ((-1.0, -2.0), (-4.0, 2.0))
    ]
    report = mbd.describe(mechanism, states[0])
    assert report.coordinates == ("q1.angle", "q2.displacement", "crank pin.angle", "rod pin.angle")
    assert report.dependent == ("crank pin.angle", "rod pin.angle")
    assert report.independent == ("q1.angle", "q2.displacement")
    bends = [math.remainder(float(state["rod pin.angle"]), 2 * math.pi) for state in states]
    assert bends[0] * bends[1] < 0
    assert abs(bends[0] + bends[1]) < 1e-9  # the mirror image about the line from the crank's pivot to the pin
    ts = np.linspace(0, 1, 11)
    motions = [mbd.simulate(mechanism, state, ts) for state in states]
    first, second = (np.asarray(motion["q1.angle"]) for motion in motions)
    assert np.abs(second - first).max() > 1e-2  # two mechanisms, as it were


# --- an open chain against a recursive Newton-Euler -----------------------------------------------


def chain(count: int) -> sp.Mechanism:
    """A chain of hinges about random axes, of bodies with random inertia."""
    rng = np.random.default_rng(3)
    bodies, joints, last = [], [], sp.ground.at(axis=rng.normal(size=3))
    for i in range(count):
        shape = rng.normal(size=(3, 3))
        second = shape @ shape.T  # second moments of mass
        body = sp.Body(f"b{i}", rng.uniform(0.5, 2), np.trace(second) * np.eye(3) - second)
        joints.append(sp.Revolute(f"j{i}", last, body.at(*rng.normal(size=3), axis=rng.normal(size=3))))
        last = body.at(*rng.normal(size=3), axis=rng.normal(size=3))
        bodies.append(body)
    return sp.Mechanism(bodies, joints, [sp.Gravity((1.0, -2.0, -9.81))], coordinates="joint")


def newton_euler(mechanism: Any, q: np.ndarray, v: np.ndarray, a: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Joint torques of an open chain by the recursive Newton-Euler algorithm (Luh, Walker and Paul, 1980).

    World axes throughout: outward positions, velocities and accelerations, inward forces and moments.
    """
    R, p, omega, alpha, point = np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
    linear, found = -g, []  # gravity as an acceleration of the ground
    for i, joint in enumerate(mechanism.joints):
        near, far = joint.a, joint.b
        arm = R @ np.asarray(near.position)
        linear = linear + np.cross(alpha, arm) + np.cross(omega, np.cross(omega, arm))
        point, frame = p + arm, R @ np.asarray(rot.matrix(near.rotation))
        axis = frame[:, 2]
        alpha = alpha + a[i] * axis + np.cross(omega, v[i] * axis)
        omega = omega + v[i] * axis
        R = frame @ np.asarray(rot.matrix(rot.about("z", q[i]))) @ np.asarray(rot.matrix(far.rotation)).T
        out = -R @ np.asarray(far.position)
        linear = linear + np.cross(alpha, out) + np.cross(omega, np.cross(omega, out))
        p, body = point + out, mechanism.bodies[i]
        J = R @ np.asarray(body.inertia) @ R.T
        found.append((axis, point, p, float(body.mass) * linear, J @ alpha + np.cross(omega, J @ omega)))
    torques, force, moment = np.zeros(len(q)), np.zeros(3), np.zeros(3)
    beyond = np.zeros(3)  # where `force` and `moment` are taken about
    for i in reversed(range(len(q))):
        axis, hinge, centre, f, n = found[i]
        moment = moment + np.cross(beyond - hinge, force) + n + np.cross(centre - hinge, f)
        force, beyond = force + f, hinge
        torques[i] = axis @ moment
    return torques


def test_a_chain_of_twenty_links_agrees_with_newton_euler(rng: np.random.Generator) -> None:
    mechanism, n = chain(20), 20
    q, v = rng.normal(size=n), rng.normal(size=n)
    system = mbd.export(mechanism)
    pieces = lambda t, q, p: (system.piece("xM")(t, q, p), system.piece("vF")(t, q, p))  # noqa: E731
    M, F = jax.jit(pieces)(jnp.asarray(0.0), q, v)
    gravity, still = np.array([1.0, -2.0, -9.81]), np.zeros(n)
    columns = [newton_euler(mechanism, q, still, e, np.zeros(3)) for e in np.eye(n)]
    expected = -newton_euler(mechanism, q, v, still, gravity)
    np.testing.assert_allclose(M, np.stack(columns, axis=1), rtol=1e-11, atol=1e-11 * np.abs(M).max())
    np.testing.assert_allclose(F, expected, rtol=1e-11, atol=1e-11 * np.abs(F).max())


# --- derivatives ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_in_joint_coordinates() -> None:
    """Of a position, an acceleration and two reactions after a while, one of a tree joint, by a mass, the place of a
    pin and a stiffness: reverse mode against differences of the motion in absolute coordinates."""
    base = ALL["four_bar_with_springs"]()
    ts = np.linspace(0, 0.1, 2)

    @eqx.filter_jit
    def seen(numbers: Array, mechanism: pl.Mechanism) -> Array:
        where = lambda m: (m["coupler"].mass, m["A"].a.position, m["spring"].stiffness)  # noqa: E731
        new = eqx.tree_at(where, mechanism, (numbers[0], numbers[1:3], numbers[3]))
        state = mbd.assemble(new, base.fixed, speeds=base.speeds)
        last = mbd.simulate(new, state, ts, accuracy="high").read(["coupler.x", "crank.alpha", "A.fx", "C.fy"])
        return jnp.stack([value[-1] for value in last.values()])

    numbers = jnp.asarray([0.5, 0.06, 0.0, 60.0])
    found = np.asarray(jax.jit(jax.jacrev(seen))(numbers, base.mechanism.with_coordinates("joint")))
    step = 1e-4 * np.maximum(np.abs(numbers), 0.1)
    ahead, behind = (
        np.stack([seen(numbers + sign * step[i] * jnp.eye(4)[i], base.mechanism) for i in range(4)], axis=1)
        for sign in (1, -1)
    )
    slopes = (ahead - behind) / (2 * step)
    scale = np.abs(slopes).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / scale, slopes / scale, atol=1e-5)


def largest(jaxpr: Any) -> int:
    """The numbers in the largest array of a computation."""
    sizes = [int(np.prod(var.aval.shape, dtype=int)) for equation in jaxpr.eqns for var in equation.outvars]
    inner = [getattr(p, "jaxpr", p) for equation in jaxpr.eqns for p in equation.params.values() if hasattr(p, "eqns")]
    return max(*sizes, *(largest(x) for x in inner), 0)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_no_array_grows_faster_than_a_chain_of_loops(coordinates: str) -> None:
    sizes = []
    for n in (60, 120):  # up to 100 rows XLA has a dense factor
        mechanism = examples.four_bars(n).mechanism.with_coordinates(coordinates)
        equations, zero = Equations(mechanism, redundant=False), jnp.zeros(())

        def everything(q: Array, v: Array, equations: Equations = equations, t: Array = zero) -> Any:
            at = equations.at(t, q)
            return at.schur().values, at.inertia.solve(at.force(v)), at.gamma(v), at.times(v), at.rate(v)

        sizes.append(largest(jax.make_jaxpr(everything)(jnp.zeros(mechanism.nq), jnp.zeros(mechanism.nv)).jaxpr))
    assert sizes[1] < 2.1 * sizes[0]


def test_sums_along_the_paths_of_a_tree(rng: np.random.Generator) -> None:
    """Of a tree that branches, and of a forest, against the matrix that says who is on whose path."""
    for parents in ([7, 0, 1, 1, 3, 3, 5], [5, 0, 5, 2, 3], [1]):
        count = len(parents)
        on_path = np.eye(count)
        for node in range(count):
            here = parents[node]
            while here < count:
                on_path[node, here], here = 1, parents[here]
        paths, values = TreePaths(np.array(parents)), rng.normal(size=(count, 3))
        np.testing.assert_allclose(paths.to_root(jnp.asarray(values)), on_path @ values, atol=1e-14)
        np.testing.assert_allclose(paths.subtree_sum(jnp.asarray(values)), on_path.T @ values, atol=1e-14)
        assert {*zip(*(x.tolist() for x in paths.pairs()), strict=True)} == {*zip(*np.nonzero(on_path), strict=True)}
        assert (np.diff(paths.pairs()[0]) >= 0).all()


def test_inertia_of_a_chain_of_links() -> None:
    """Ten links, deeper than the doubling's first rounds: `½ vᵀ M v` is the sum of what the bodies have."""
    mechanism = examples.get("hanging-chain").mechanism.with_coordinates("joint")
    equations = Equations(mechanism)
    q, v = jnp.linspace(0.1, 0.9, mechanism.nq), jnp.linspace(-1.0, 2.0, mechanism.nv)
    at = equations.at(jnp.zeros(()), q)
    np.testing.assert_allclose(0.5 * v @ at.inertia.matrix() @ v, at.kinetic_energy(v), rtol=1e-13)
