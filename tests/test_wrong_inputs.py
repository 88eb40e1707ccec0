# pyright: reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
"""Parts, mechanisms and rotations that cannot be right: what is given, and the exact text of the error."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.space import rotation
from tests.wrong_inputs import BALL, GRIP, ROD, TS, Cases, G, M, S, check_text, pend

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")

CASES: Cases = {
    "complex mass": (
        lambda: pl.Body("b", 1 + 1j, 1),
        "Body 'b': mass must be a real number, got (1+1j).",
    ),
    "complex mass s": (
        lambda: sp.Body("b", 1 + 1j, (1, 1, 1)),
        "Body 'b': mass must be a real number, got (1+1j).",
    ),
    "complex marker": (
        lambda: ROD.at(1j),
        "Marker on 'rod', made by at(x, y, angle): x must be a real number, got 1j.",
    ),
    "complex pose": (
        lambda: pl.Body("b", 1, 1, (1j, 0, 0)),
        "Body 'b': pose must be real, got [0.+1.j 0.+0.j 0.+0.j].",
    ),
    "complex stiffness": (
        lambda: pl.SpringDamper("s", G, GRIP, 1j),
        "SpringDamper 's': stiffness must be a real number, got 1j.",
    ),
    "name blank": (
        lambda: pl.Body(" ", 1, 1),
        "A name must be one line without spaces at its ends, got ' ' for the body; perhaps 'part'.",
    ),
    "name newline": (
        lambda: pl.Body("a\nb", 1, 1),
        "A name must be one line without spaces at its ends, got 'a\\nb' for the body; perhaps 'a_b'.",
    ),
    "name trailing": (
        lambda: pl.Body("a ", 1, 1),
        "A name must be one line without spaces at its ends, got 'a ' for the body; perhaps 'a'.",
    ),
    "name joint blank": (
        lambda: pl.Revolute(" ", G, GRIP),
        "A name must be one line without spaces at its ends, got ' ' for the Revolute; perhaps 'part'.",
    ),
    "speeds names": (
        lambda: pend(coordinates="joint", speeds=pl.GeneralizedSpeeds([" "], lambda t, q, p, _: p)),
        "A name must be one line without spaces at its ends, got ' ' for the generalized speed; perhaps 'part'.",
    ),
    "speeds names int": (
        lambda: pl.GeneralizedSpeeds([1], lambda t, q, p, _: p),
        "GeneralizedSpeeds: names must be a sequence of names, such as ['u']; 1 is no string.",
    ),
    "speeds None": (
        lambda: pl.GeneralizedSpeeds(None, lambda t, q, p, _: p),
        "GeneralizedSpeeds: names must be a sequence of names, such as ['u'], got None.",
    ),
    "speeds wrong": (
        lambda: pend(coordinates="joint", speeds=lambda p: p),
        "speeds must be GeneralizedSpeeds(names, function), got a function.",
    ),
    "driver dict": (
        lambda: pl.Driver("d", "O.angle", {}),
        "Driver 'd': motion must be a number, got a dict.",
    ),
    "Gravity text": (
        lambda: pl.Gravity("9.81"),
        "Gravity 'gravity': acceleration must be a number, got '9.81'.",
    ),
    "Gravity None": (
        lambda: pl.Gravity(None),
        "Gravity 'gravity': acceleration must be a number, got None.",
    ),
    "Gravity dict": (
        lambda: pl.Gravity({}),
        "Gravity 'gravity': acceleration must be a number, got a dict.",
    ),
    "mech[int]": (
        lambda: M[0],
        "A part is named by a string, got 0. ",
    ),
    "mech coord int": (
        lambda: M.coordinate(3),
        "A coordinate's name must be text such as 'O.angle', got 3.",
    ),
    "at_world": (
        lambda: BALL.at_world((0, 0, 1)),
        "Marker on 'rod', made by at_world(x, y, z): x must be a number, got shape (3,).",
    ),
    "ground at_world": (
        lambda: sp.ground.at_world((0, 0, 1)),
        "Marker on 'ground', made by at_world(x, y, z): x must be a number, got shape (3,).",
    ),
    "sbody inertia text": (
        lambda: sp.Body("b", 1, "x"),
        "Body 'b': inertia must be three principal moments or a matrix of shape (3, 3) [kg m²], got 'x'.",
    ),
    "sbody inertia None": (
        lambda: sp.Body("b", 1, None),
        "Body 'b': inertia [kg m²] is missing. Give it, or a solid that has mass and inertia both, such as Body(name, "
        "box(density, x, y, z)).",
    ),
    "moving marker without result": (
        lambda: pl.ground.moving(lambda t: None),
        "MovingMarker on 'ground': the function motion returns None, not numbers of shape (2,). Is its return missing?",
    ),
    "moving marker, arguments": (
        lambda: pl.ground.moving(lambda: 0.0),
        "MovingMarker on 'ground': motion is called as motion(t), and <lambda>() cannot be: too many positional "
        "arguments.",
    ),
    "mech cuts int": (
        lambda: pend(coordinates="joint", cuts=3),
        "cuts must be a sequence of names, such as ['O'], got 3.",
    ),
    "SmoothingSpline text": (
        lambda: mbd.SmoothingSpline("x", "y"),
        "SmoothingSpline: ts and values must be sequences of real numbers (could not convert string to float: 'x').",
    ),
    "SmoothingSpline None": (
        lambda: mbd.SmoothingSpline(np.arange(8.0), np.arange(8.0), None),
        "SmoothingSpline: smoothing must be 'auto' or a finite number of at least zero, got None.",
    ),
    "SmoothingSpline infinite": (
        lambda: mbd.SmoothingSpline(np.arange(8.0), np.arange(8.0), np.inf),
        "SmoothingSpline: smoothing must be 'auto' or a finite number of at least zero, got inf.",
    ),
    "curve closed": (lambda: mbd.Curve(np.eye(3), closed=1), "Curve: closed must be True or False, got 1."),
    "curve along a number": (
        lambda: mbd.Curve(lambda u: (u, u), parameter=(0, 1)).along(1.0),
        "AlongCurve: motion must be a function of time [s] that returns the arc length [m], got 1.0.",
    ),
    "rotation vector ragged": (
        lambda: rotation.from_vector([(1, 2), 0, 0]),
        "rotation.from_vector: theta must be real numbers, got [(1, 2), 0, 0].",
    ),
    "rotation vector complex": (
        lambda: rotation.from_vector((1j, 0, 0)),
        "rotation.from_vector: theta must be real numbers, got (1j, 0, 0).",
    ),
    "rotation vector of nothing": (
        lambda: rotation.from_vector((None, 0, 0)),
        "rotation.from_vector: theta must be real numbers, got (None, 0, 0).",
    ),
    "box complex": (
        lambda: sp.box(1j, 1, 1, 1),
        "box: density must be a real number [kg/m³], got 1j.",
    ),
    "measure unit": (
        lambda: pl.Measure("m", lambda *a: a[0], unit=3),
        "Measure 'm': unit must be text, such as 'N m', got 3.",
    ),
    "rot matrix reflect": (
        lambda: rotation.from_matrix(-np.eye(3)),
        "A rotation matrix must have determinant +1, got [[-1.0, -0.0, -0.0], [-0.0, -1.0, -0.0], "
        "[-0.0, -0.0, -1.0]] with determinant −1, a mirror image; turn the sign of one column, or "
        "take three right-handed axes.",
    ),
    "ballcut without int": (
        lambda: pl.PointConstraint("b", G, GRIP, 3),
        "PointConstraint: without must be a sequence of names, such as ['z'], got 3.",
    ),
    "drag neg": (
        lambda: pl.PointDrag("d", GRIP, -1.0),
        "PointDrag 'd': quadratic must be zero or positive [N s²/m²] and finite, got -1.",
    ),
    "body pose state": (
        lambda: pl.Body("b", 1, 1, S),
        "Body 'b': pose must be numbers of shape (3,), got a State.",
    ),
    "smarker rotation zero": (
        lambda: sp.Marker("rod", (0, 0, 0), (0, 0, 0, 0)),
        "Marker on 'rod': the Euler parameters of its rotation are all zero; (1, 0, 0, 0) is no rotation.",
    ),
    "rot about text": (
        lambda: rotation.about("x", "1"),
        "rotation.about: angle must be real numbers, got '1'.",
    ),
    "rot complex": (
        lambda: rotation.about((0, 0, 1j), 1.0),
        "rotation.about: axis must be real numbers, got (0, 0, 1j).",
    ),
    "driver text": (
        lambda: pl.Driver("d", "O.angle", "1"),
        "Driver 'd': motion must be a number, got '1'.",
    ),
    "gravity texts": (
        lambda: pl.Gravity(["0", "-9.81"]),
        "Gravity 'gravity': acceleration must be a number, got ['0', '-9.81'].",
    ),
    "ragged pose": (
        lambda: pl.Body("b", 1, 1, [[1], [2, 3]]),
        "Body 'b': pose must be numbers of shape (3,), got [[1], [2, 3]].",
    ),
    "texts pose": (
        lambda: pl.Body("b", 1, 1, ["a", "b", "c"]),
        "Body 'b': pose must be numbers of shape (3,), got ['a', 'b', 'c'].",
    ),
    "ragged inertia": (
        lambda: sp.Body("b", 1, [[1], [2, 3]]),
        "Body 'b': inertia must be three principal moments or a matrix of shape (3, 3) [kg m²], got [[1], [2, 3]].",
    ),
    "mech forces class": (
        lambda: pl.Mechanism([ROD], [], [pl.Gravity]),
        "Among forces there is the class Gravity; make one: Gravity(...).",
    ),
    "sat tuple": (
        lambda: BALL.at((0, 1, 0)),
        "Marker on 'rod', made by at(x, y, z): x must be a number, got shape (3,).",
    ),
    "rot matrix scaled": (
        lambda: rotation.from_matrix(2 * np.eye(3)),
        "A rotation matrix must be orthogonal, got [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, "
        "2.0]], whose RᵀR differs from I by 3.",
    ),
    "complex inertia s": (
        lambda: sp.Body("b", 1, (1, 1, 1j)),
        "Body 'b': inertia must be real [kg m²], got complex128.",
    ),
}

CASES |= {
    "floating text": (
        lambda: pend(floating="no"),
        "Mechanism: floating must be True or False, got 'no'.",
    ),
    "floating traced": (
        lambda: jax.jit(lambda floating: pend(floating=floating).nq)(True),
        "Mechanism: floating must be True or False, got a traced value; name it in static_argnames of jax.jit.",
    ),
    "force of nothing": (
        lambda: pl.Force("f", GRIP),
        "Force 'f': give a force [N], a torque [N m], or both.",
    ),
    "Piecewise text": (
        lambda: mbd.Piecewise("x", [1.0]),
        "Piecewise: times must be real numbers, got 'x'.",
    ),
    "Piecewise of text": (
        lambda: mbd.Piecewise([1.0], [0.0, "x"]),
        "Piecewise: pieces[1] must be real numbers, got 'x'.",
    ),
    "Table None": (
        lambda: mbd.Table(None, None),
        "Table: times must be real numbers, got None.",
    ),
    "Table complex": (
        lambda: mbd.Table([0.0, 1.0], [0.0, 1j]),
        "Table: values must be real numbers, got [0.0, 1j].",
    ),
    "with_parts, one force": (
        lambda: M.with_parts(pl.Gravity()),
        "parts must be a sequence of parts, such as [part], got a Gravity.",
    ),
    "with_parts, class": (
        lambda: M.with_parts([pl.Gravity]),
        "Among parts there is the class Gravity; make one: Gravity(...).",
    ),
    "with_parts, no part": (
        lambda: M.with_parts([GRIP]),
        "Among parts there is a Marker; expected one of: Body, Joint, Coupling, GlobalConstraint, Tendon, GearMesh, "
        "Force, JointForce, Gravity, GeneralizedForce, Driver, Sensor, Measure, Scaled, Controller.",
    ),
    "with_parts, a name that exists": (
        lambda: M.with_parts([pl.Force("O", GRIP, (1.0, 0.0))]),
        "with_parts adds parts, and there is one named 'O' already, a Revolute: give the new one a name of its own, or "
        "replace the joints by replacing(joints=[...]).",
    ),
    "replacing, no force": (
        lambda: M.replacing(forces=[GRIP]),
        "Among forces there is a Marker; expected one of: Force, JointForce, Gravity, GeneralizedForce.",
    ),
    "replacing, no driver": (
        lambda: M.replacing(drivers=[pl.Gravity()]),
        "Among drivers there is a Gravity; expected one of: Driver. It belongs to forces=[...].",
    ),
    "a body as a coordinate": (
        lambda: mbd.assemble(M, {"rod": 0.3}),
        "'rod' is a body, not a coordinate; its coordinates are 'rod.x', 'rod.y', 'rod.theta'.",
    ),
    "a joint as a coordinate": (
        lambda: mbd.assemble(M, {"O": 0.3}),
        "'O' is a joint, not a coordinate; its coordinates are 'O.angle'.",
    ),
    "gravity upwards": (
        lambda: pl.Gravity(-9.81),
        "Gravity 'gravity': a number acts downwards (−y in the plane, −z in space) and is not negative, got -9.81. For "
        "another direction give a vector [m/s²], such as (0.0, 9.81).",
    ),
    "many mechanisms without vmap": (
        lambda: mbd.simulate(eqx.tree_at(lambda m: m["rod"].mass, M, jnp.ones(3)), S, TS),
        "Body 'rod': mass must be a number, got shape (3,). An analysis takes one mechanism; for many at once write "
        "jax.vmap(lambda mechanism: ...)(mechanisms).",
    ),
    "replacing, names": (
        lambda: M.replacing(forces=[pl.Force("O", GRIP, (1.0, 0.0))]),
        "Two parts are named 'O': a Revolute and a Force. Give each a name of its own.",
    ),
    "with_parts, coordinate": (
        lambda: M.with_parts([pl.Driver("d", "P.angle", 0.0)]),
        "Driver 'd': There is no joint or body named 'P'. ",
    ),
    "with_parts, space": (
        lambda: M.with_parts([sp.Force("f", BALL.at(), (1.0, 0.0, 0.0))]),
        "Force 'f' lives in 3 dimensions, body 'rod' in 2. Take all parts from jaxmbd.planar, or all from "
        "jaxmbd.spatial.",
    ),
    "with_parts, function": (
        lambda: M.with_parts([pl.JointForce("f", "O.angle", lambda t: 0.0)]),
        "JointForce 'f': force is called as force(t, coordinate, rate, parameters), and <lambda>(t) cannot be: "
        "too many positional arguments.",
    ),
    "replacing, what a sensor reads": (
        lambda: pend([pl.JointForce("f", "O.angle", lambda *_: 0.0)], sensors=[pl.Scaled("s", "f.effort")]).replacing(
            forces=[]
        ),
        "Scaled 's': There is no part named 'f.effort'. ",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case: str) -> None:
    check_text(*CASES[case])
