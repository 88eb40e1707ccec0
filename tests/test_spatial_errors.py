"""What is wrong with a mechanism in space is said by name, with what was given and what would be right."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

BODY = sp.Body("rod", 1.0, (0.1, 0.1, 0.1))
HERE, THERE = sp.ground.at(), BODY.at()
FLAT = pl.Body("flat", 1.0, 0.1)


def mechanism(*joints: Any, **parts: Any) -> sp.Mechanism:
    return sp.Mechanism([BODY], [sp.Revolute("O", HERE, THERE), *joints], **parts)


CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "inertia not of a body": (
        lambda: sp.Body("b", 1.0, (1.0, 1.0, 3.0)),
        ("Body 'b'", "inertia", "3", "sum of the other two"),
    ),
    "inertia not symmetric": (
        lambda: sp.Body("b", 1.0, [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        ("Body 'b'", "symmetric"),
    ),
    "inertia not positive": (lambda: sp.Body("b", 1.0, (1.0, 1.0, -1.0)), ("Body 'b'", "negative principal moment")),
    "mass": (lambda: sp.Body("b", 0.0, (1.0, 1.0, 1.0)), ("Body 'b'", "mass must be positive [kg]", "got 0")),
    "no rotation": (
        lambda: sp.Body("b", 1.0, (1.0, 1.0, 1.0), jnp.zeros(7)),
        ("Body 'b'", "Euler parameters", "(1, 0, 0, 0)"),
    ),
    "pose": (lambda: sp.Body("b", 1.0, (1.0, 1.0, 1.0), (1.0, 2.0)), ("Body 'b'", "pose must have shape (7,)", "(2,)")),
    "point as one argument": (
        lambda: BODY.at(jnp.asarray([1.0, 0.0, 0.0])),
        ("Marker on 'rod'", "x must be a number", "(3,)"),
    ),
    "axis and rotation": (
        lambda: BODY.at(axis=(0, 0, 1), rotation=(1, 0, 0, 0)),
        ("Marker on 'rod'", "either axis or rotation"),
    ),
    "axis": (lambda: BODY.at(axis="z up"), ("Marker on 'rod'", "axis", "'z up'")),
    "planar marker": (
        lambda: sp.Revolute("O", sp.ground.at(), FLAT.at()),
        ("Revolute 'O'", "'flat'", "the plane", "space", "jaxmbd.spatial"),
    ),
    "two spaces in one joint": (
        lambda: sp.Rod("r", sp.ground.at(), FLAT.at(), 1.0),
        ("Rod 'r'", "'flat'", "jaxmbd.spatial"),
    ),
    "two spaces in one mechanism": (
        lambda: sp.Mechanism([BODY, FLAT]),
        ("Body 'flat' lives in 2 dimensions", "in 3", "or all from jaxmbd.spatial"),
    ),
    "gravity of the plane": (
        lambda: mechanism(forces=[sp.Gravity((0.0, -9.81))]),
        ("Gravity 'gravity'", "acceleration must have shape (3,)", "(2,)"),
    ),
    "rod cut of no length": (
        lambda: sp.Rod("r", HERE, THERE, 0.0),
        ("Rod 'r'", "length must be positive", "PointConstraint"),
    ),
    "ball cut without direction": (
        lambda: sp.PointConstraint("c", HERE, THERE, ("w",)),
        ("PointConstraint 'c'", "'x', 'y', 'z'", "'w'"),
    ),
    "ball cut of nothing": (
        lambda: sp.PointConstraint("c", HERE, THERE, "xyz"),
        ("PointConstraint 'c'", "nothing is left"),
    ),
    "screw without lead": (lambda: sp.Screw("s", HERE, THERE, 0.0), ("Screw 's'", "lead", "Revolute")),
    "driver of an Euler parameter": (
        lambda: mechanism(drivers=[sp.Driver("d", "rod.e0", 1.0)]),
        ("Driver 'd'", "coordinate of body 'rod' named 'e0'", "'x', 'y', 'z'"),
    ),
    "driver of what": (
        lambda: sp.Driver("d", "O.angle", 1.0, prescribes="force"),
        ("Driver 'd'", "'position' or 'speed'", "'force'"),
    ),
    "gear of no joint": (lambda: mechanism(sp.Gear("g", "O.angle", "P.angle", 2.0)), ("Gear 'g'", "named 'P'", "'O'")),
    "gear of no coordinate": (
        lambda: mechanism(sp.Gear("g", "O.angle", "O.angel", 2.0)),
        ("Gear 'g'", "'angel'", "Did you mean 'angle'?"),
    ),
    "bushing": (
        lambda: sp.Bushing("b", HERE, THERE, (1.0, 2.0, 3.0)),
        ("Bushing 'b'", "stiffness must have shape (6,)", "(3,)"),
    ),
    "stop": (
        lambda: sp.JointStop("s", "O.angle", 1.0, -1.0, 10.0),
        ("JointStop 's'", "lower must be below upper", "1", "-1"),
    ),
    "stop of two stiffnesses": (
        lambda: sp.JointStop("s", "O.angle", -1.0, 1.0, (10.0, 20.0)),
        ("JointStop 's'", "stiffness must be a number", "(2,)"),
    ),
    "stop without exponent, at a traced limit": (
        lambda: jax.grad(lambda lower: sp.JointStop("s", "O.angle", lower, 1.0, 10.0, exponent=0.0).lower)(-1.0),
        ("JointStop 's'", "exponent must be positive", "0"),
    ),
    "torque": (lambda: sp.Torque("t", THERE, 1.0), ("Torque 't'", "torque must have shape (3,)")),
    "user force": (
        lambda: mechanism(forces=[sp.UserForce("u", lambda t, f, r, p: jnp.zeros((1, 3)), (THERE,))]),
        ("UserForce 'u'", "(1, 6)", "fx, fy, fz, mx, my, mz", "(1, 3)"),
    ),
    "slip of wrong shape": (
        lambda: mechanism(sp.NonholonomicConstraint("n", lambda t, f, r, p: jnp.zeros((2, 2)), HERE, THERE)),
        ("NonholonomicConstraint 'n'", "a scalar or a vector", "(2, 2)"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case: str) -> None:
    make, words = CASES[case]
    with pytest.raises(mbd.MechanismError) as error:
        make()
    assert re.search(".*".join(map(re.escape, words)), str(error.value), re.DOTALL), str(error.value)
