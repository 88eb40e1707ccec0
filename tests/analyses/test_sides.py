"""Joints that are zero on two sides: what assembly accepts has coordinates that reproduce the frames of the markers."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.joint.joint import AbstractSidedJoint, AbstractTreeJoint
from jaxmbd.model.joint.planar import AbstractPlanarTreeJoint
from jaxmbd.space.vectors import dot
from tests.marks import slow_but

CLOSED = 1e-7  # [m, rad], some times the tolerance of assembly
TRIES = 24  # random poses of each joint, with as many that are closed, but turned over
FLIP = Rotation.from_rotvec([np.pi, 0, 0])


def spatial_joints() -> dict[str, Any]:
    """A body on the ground by each joint in space that has coordinates or a side."""
    body = sp.Body("b", 2.0, (0.1, 0.2, 0.25))
    a, b = sp.ground.at(0.1, 0.2, 0.3, axis=(1, 2, 3)), body.at(0.3, -0.1, 0.2, axis=(1, -2, 0.5))
    kinds = (
        sp.Revolute, sp.Prismatic, sp.Cylindrical, sp.Planar, sp.Universal, sp.Spherical, sp.Weld, sp.FixedConstraint,
        sp.ConstantVelocity, sp.PointOnLine, sp.PointOnPlane,
    )  # fmt: skip
    joints = [*(kind("P", a, b) for kind in kinds), sp.Screw("P", a, b, 0.3), sp.RevoluteSpherical("P", a, b, 0.4)]
    return {type(joint).__name__: (body, joint) for joint in joints}


def planar_joints() -> dict[str, Any]:
    """The same in the plane."""
    body = pl.Body("b", 2.0, 0.1)
    a, b = pl.ground.at(0.1, 0.2, 0.3), body.at(0.3, -0.1, 0.5)
    kinds = (pl.Revolute, pl.Prismatic, pl.PinInSlot, pl.Weld, pl.FixedConstraint, SineSlider)
    return {f"planar {kind.__name__}": (body, kind("P", a, b)) for kind in kinds}


class SineSlider(AbstractPlanarTreeJoint, AbstractSidedJoint):
    """A user's slider whose second row, the sine of the angle, is zero after half a turn too."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("displacement",)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m",)

    def residual(self, t: Any, frames: Any) -> Array:
        a, b = frames
        return jnp.stack([dot(a.normal, b.position - a.position), dot(a.normal, b.axis)])

    def side(self, frames: Any) -> Any:
        a, b = frames
        return dot(a.axis, b.axis)

    def motion(self, frames: Any) -> Array:
        a, b = frames
        return jnp.stack([dot(a.axis, b.position - a.position)])

    def X_FM(self, c: Array) -> Any:
        return pl.Frame(jnp.append(c, 0.0), jnp.zeros_like(c[0]))

    def across_joint_velocity(self, c: Array, w: Array) -> Array:
        return jnp.append(w, jnp.zeros(2, w.dtype))


JOINTS = {**spatial_joints(), **planar_joints()}


def expected(joint: Any, frames: tuple[Any, Any]) -> tuple[Any, Any]:
    """The position, and the rotation or angle, of the second marker in the first one's frame that the joint's
    coordinates give it; None for what they leave open."""
    if isinstance(joint, AbstractTreeJoint):
        there = joint.X_FM(joint.measure(frames))
        return there.position, there.angle if joint.a.space.dim == 2 else there.rotation
    match joint:
        case sp.PointOnLine():
            return jnp.append(jnp.zeros(2), joint.motion(frames)), None
        case sp.PointOnPlane():
            return jnp.append(joint.motion(frames), 0.0), None
        case sp.RevoluteSpherical():
            angle = joint.motion(frames)[0]
            return 0.4 * jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle)]), None
    return jnp.zeros(joint.a.space.dim), jnp.eye(3) if joint.a.space.dim == 3 else 0.0


def mechanism_of(name: str, coordinates: str) -> Any:
    body, joint = JOINTS[name]
    module = pl if name.startswith("planar") else sp
    cuts = ["P"] if coordinates == "joint" and isinstance(joint, AbstractTreeJoint) else ()
    return module.Mechanism([body], [joint], coordinates=coordinates, floating=True, cuts=cuts)


@cache
def poses(name: str) -> np.ndarray:
    """Random poses, and some in which the markers coincide but for a half turn about an axis of the first one."""
    rng, (_, joint) = np.random.default_rng(5), JOINTS[name]
    if joint.a.space.dim == 2:
        return np.concatenate([rng.normal(size=(TRIES, 2)), rng.uniform(-3, 3, (TRIES, 1))], axis=1)
    random = np.concatenate([rng.normal(size=(TRIES, 3)), rng.normal(size=(TRIES, 4))], axis=1)
    if isinstance(joint, sp.RevoluteSpherical):  # a rod between points that coincide has no direction
        return random
    first, second = joint.a.local, joint.b.local
    turned = []
    for axis, angle in zip(np.eye(3)[np.arange(TRIES) % 3], rng.uniform(0, 6, TRIES), strict=True):
        half, about_z = Rotation.from_rotvec(np.pi * axis), Rotation.from_rotvec([0, 0, angle])
        R = Rotation.from_matrix(np.array(first.rotation)) * half * about_z
        R = R * Rotation.from_matrix(np.array(second.rotation)).inv()
        position = np.array(first.position) - R.apply(np.array(second.position))
        turned.append([*position, *R.as_quat(scalar_first=True)])
    return np.concatenate([random, turned])


def assembled(mechanism: Any) -> Callable[[Array], Any]:
    """Assembly from a pose: whether it is accepted, the frame of the second marker in the first one's, the expected."""

    def one(pose: Array) -> Any:
        near = eqx.tree_at(lambda m: m.bodies[0].pose, mechanism, pose)
        state = mbd.assemble(near, check=False)
        joint, at = near["P"], mbd.Equations(near).at(jnp.zeros(()), state.q)
        first, second = at.near(joint.markers).frames
        position = first.to_local(second.position - first.position)
        dim = joint.a.space.dim
        turn = second.angle - first.angle if dim == 2 else first.rotation.T @ second.rotation
        return state.result == mbd.RESULTS.successful, (position, turn), expected(joint, (first, second))

    return jax.jit(jax.vmap(one))


QUICK = ("Revolute absolute", "Prismatic absolute", "planar SineSlider joint")
CASES = [f"{name} {coordinates}" for name in JOINTS for coordinates in ("absolute", "joint")]


@pytest.mark.parametrize("case", slow_but(QUICK, CASES))
def test_assembly_accepts_only_what_the_coordinates_reproduce(case: str) -> None:
    """From any pose the joint closes, with the frames that its own coordinates give."""
    name, _, coordinates = case.rpartition(" ")
    accepted, found, wanted = assembled(mechanism_of(name, coordinates))(jnp.asarray(poses(name)))
    assert np.asarray(accepted).all()
    np.testing.assert_allclose(found[0], np.broadcast_to(wanted[0], found[0].shape), atol=CLOSED)
    if name == "ConstantVelocity":  # no rotation about the shafts: the Euler parameter e3 is zero, and not e0
        R = np.asarray(found[1])
        np.testing.assert_allclose(R[:, 0, 1], R[:, 1, 0], atol=CLOSED)
        assert ((R[:, 0, 0] + R[:, 1, 1]) > 0).all()
    elif wanted[1] is not None:
        np.testing.assert_allclose(found[1], np.broadcast_to(wanted[1], found[1].shape), atol=10 * CLOSED)


def hinge(flipped: bool, coordinates: str = "absolute") -> sp.Mechanism:
    """A hinge about a skew axis with a torsion spring: ω² = k / I_zz."""
    turn = Rotation.from_rotvec([0.4, -0.7, 0.2])
    own = turn * FLIP if flipped else turn
    a, b = (R.as_quat(scalar_first=True) for R in (turn, own))
    body = sp.Body("b", 2.0, (0.25, 0.25, 0.25))
    joint, spring = (
        sp.Revolute("P", sp.ground.at(rotation=a), body.at(rotation=b)),
        sp.JointSpringDamper("s", "P.angle", 1.0),
    )
    return sp.Mechanism([body], [joint], [spring], coordinates=coordinates)


PLAIN = [(False, "absolute"), (False, "joint"), (True, "joint")]


@pytest.mark.parametrize(
    ("flipped", "coordinates"),
    [(True, "absolute"), *(pytest.param(*case, marks=pytest.mark.slow) for case in PLAIN)],
)
def test_torsion_spring_has_its_frequency(flipped: bool, coordinates: str) -> None:
    """√(1 / .25) / 2π = .31831 Hz, also if the body was given upside down."""
    mechanism = hinge(flipped, coordinates)
    found = mbd.linearize(mechanism, mbd.equilibrium(mechanism)).modes().frequencies
    np.testing.assert_allclose(found, [1 / np.pi], rtol=1e-7)


def test_a_body_at_rest_upside_down_moves_like_one_that_is_not() -> None:
    """Where the markers' axes point against each other the angle has no value; such starts stopped at t = 0."""
    ts = np.linspace(0, 1.0, 3)
    mechanism = hinge(True)
    state = mbd.assemble(mechanism, {"P.angle": 0.2})
    motion = mbd.simulate(mechanism, state, ts, accuracy="high")
    np.testing.assert_allclose(motion["P.angle"], 0.2 * np.cos(2 * ts), atol=1e-7)


def four_bar(turned: str | None, coordinates: str) -> sp.Mechanism:
    """A four-bar linkage in space, with parallel hinges but for one marker on the ground."""
    crank, rod, rocker = (
        sp.Body(name, 1.0, (0.1, 0.1, 0.1), pose)
        for name, pose in (("crank", (0.25, 0, 0)), ("rod", (0.5, 0.5, 0)), ("rocker", (1, 0.25, 0)))
    )
    axis = lambda name: "-z" if turned == name else "z"  # noqa: E731
    joints = [
        sp.Revolute("A", sp.ground.at(axis=axis("A")), crank.at(-0.25, 0, 0)),
        sp.Revolute("B", crank.at(0.25, 0, 0), rod.at(-0.5, 0, 0)),
        sp.Revolute("C", rod.at(0.5, 0, 0), rocker.at(0, 0.25, 0)),
        sp.Revolute("D", sp.ground.at(1, 0, 0, axis=axis("D")), rocker.at(0, -0.25, 0)),
    ]
    return sp.Mechanism([crank, rod, rocker], joints, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_turned_marker_of_a_loop_is_named(coordinates: str) -> None:
    """No body can be turned over in a loop: the joint is named, and the closure error is not zero."""
    with pytest.raises(mbd.AssemblyError, match=r"axes of '[ABCD]' point against each other.*axis=\"-z\""):
        mbd.assemble(four_bar("D", coordinates))
    assert mbd.closure_error(four_bar(None, coordinates)) < 1e-20
    assert mbd.closure_error(four_bar("D", coordinates)) > 0.1
    assert mbd.assemble(four_bar("D", coordinates), check=False).result != mbd.RESULTS.successful


UPSIDE_DOWN = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0)


def states(driven: bool) -> tuple[Any, Any, Any]:
    """A hinge, its state, and one in which the body is upside down, where the rows are zero as well."""
    body = sp.Body("b", 2.0, (0.1, 0.2, 0.25))
    drivers = [sp.Driver("motor", "P.angle", lambda t: t)] if driven else []
    spring = sp.JointSpringDamper("s", "P.angle", 1.0)
    mechanism = sp.Mechanism([body], [sp.Revolute("P", sp.ground.at(), body.at())], [spring], drivers)
    right = mbd.assemble(mechanism)
    wrong = eqx.tree_at(lambda s: s.q, right, jnp.asarray(UPSIDE_DOWN + (0.0,) * (len(right.q) - 7)))
    return mechanism, right, wrong


ANALYSES: dict[str, tuple[bool, Callable[..., Any]]] = {
    "simulate": (False, lambda m, s, **k: mbd.simulate(m, s, np.linspace(0, 1, 3), **k)),
    "equilibrium": (False, lambda m, s, throw=True: mbd.equilibrium(m, s, check=throw).state),
    "linearize": (False, lambda m, s: mbd.linearize(m, s)),
    "kinematics": (True, lambda m, s, **k: mbd.kinematics(m, np.linspace(0, 1, 3), s, **k)),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_no_analysis_starts_on_the_wrong_side(name: str) -> None:
    driven, analysis = ANALYSES[name]
    mechanism, right, wrong = states(driven)
    analysis(mechanism, right)
    with pytest.raises(mbd.AssemblyError, match="axes of 'P' point against each other"):
        analysis(mechanism, wrong)
    if name != "linearize":
        assert analysis(mechanism, wrong, throw=False).result == mbd.RESULTS.opposed


def test_each_instance_of_a_batch_has_its_verdict() -> None:
    mechanism, right, wrong = states(False)

    def run(q: Array) -> Any:
        state = eqx.tree_at(lambda s: s.q, right, q)
        motion = mbd.simulate(mechanism, state, np.linspace(0, 1, 3), throw=False)
        return motion.result == mbd.RESULTS.opposed, motion.q

    opposed, qs = jax.vmap(run)(jnp.stack([right.q, wrong.q]))
    assert opposed.tolist() == [False, True]
    assert np.isfinite(qs[0]).all()
    assert np.isnan(qs[1]).all()
