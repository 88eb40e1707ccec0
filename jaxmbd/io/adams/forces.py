"""Forces and motions of Adams: springs, bushings, functions of time, lengths and angles."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.errors import MechanismError
from jaxmbd.io._placement import Placement
from jaxmbd.io.adams.dataset import Dataset, Side
from jaxmbd.io.adams.functions import ANGULAR, LINEAR, Expression
from jaxmbd.io.adams.joints import hinge, marker, world
from jaxmbd.io.adams.statements import Statement
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.compliant import Bushing
from jaxmbd.model.force.joint_forces import JointForce, JointSpringDamper
from jaxmbd.model.force.marker_forces import Force, SpringDamper
from jaxmbd.model.joint.spatial import Cylindrical, Prismatic, Revolute
from jaxmbd.model.mechanism.mechanism import AnyForce

_ROTATIONAL, _TRANSLATIONAL = "ROTATIONAL", "TRANSLATIONAL"
_NO_HINGE = "acts between parts that no revolute or cylindrical joint about its axis joins; it is left out"


class Components(eqx.Module):
    """A vector whose components are functions of time, zero where there is none; of the arguments of a `Force`."""

    components: tuple[Expression | None, ...]

    def __call__(self, t: Scalar, *_: object) -> Float[Array, "3"]:
        zero = jnp.zeros_like(t)
        return jnp.stack([zero if own is None else own(t) for own in self.components])


def is_rotational(statement: Statement) -> bool:
    """Whether a statement has the flag ROTATION, rather than TRANSLATION."""
    kinds = [kind for kind in (_ROTATIONAL, _TRANSLATIONAL) for flag in statement.flags if _is(flag, kind)]
    if len(kinds) != 1:
        raise statement.error(f"it must be either ROTATIONAL or TRANSLATIONAL, got {statement.flags}.")
    return kinds[0] == _ROTATIONAL


def _is(flag: str, kind: str) -> bool:
    return len(flag) > 1 and kind.startswith(flag)


def read_force(dataset: Dataset, statement: Statement) -> list[AnyForce]:
    """The force of a statement; none, with a remark, if it has no counterpart."""
    read = {
        "BUSHING": _bushing, "GFORCE": _vector_force, "SFORCE": _single_force, "SPRINGDAMPER": _spring,
        "VFORCE": _vector_force, "VTORQUE": _vector_force,
    }[statement.keyword]  # fmt: skip
    try:
        return read(dataset, statement)
    except _LeftOutError as reason:
        dataset.lost(statement, str(reason))
        return []


class _LeftOutError(Exception):
    """A statement has no counterpart; its text says why."""


def _both(dataset: Dataset, statement: Statement) -> tuple[Side, Side]:
    j, i = dataset.side(statement, "J"), dataset.side(statement, "I")
    if j[0].body.name == i[0].body.name:
        raise _LeftOutError(f"acts between {j[0].body.name!r} and itself and is left out")
    return j, i


def _hinge(dataset: Dataset, j: Side, i: Side) -> tuple[str, int, float]:
    found = hinge(dataset, j, i)
    if found is None:
        raise _LeftOutError(_NO_HINGE)
    return found


def _bushing(dataset: Dataset, statement: Statement) -> list[AnyForce]:
    """On I: the force `−K r − C ṙ` and the torque `−KT θ − CT ω`, in the axes of J."""
    dataset.known(statement, "I", "J", "K", "KT", "C", "CT", "FORCE", "TORQUE")
    units = dataset.units
    stiff, turned = units.force / units.length, units.force * units.length
    stiffness = [*(stiff * statement.vector("K")), *(turned * statement.vector("KT"))]
    damping = [*(stiff * units.time * statement.vector("C")), *(turned * units.time * statement.vector("CT"))]
    if any(statement.vector(key).any() for key in ("FORCE", "TORQUE")):
        dataset.lost(statement, "has a preload, which is left out")
    j, i = _both(dataset, statement)
    return [Bushing(dataset.name(statement), marker(j), marker(i), stiffness, damping)]


def _spring(dataset: Dataset, statement: Statement) -> list[AnyForce]:
    """`−C ṙ − K (r − LENGTH) + FORCE` pushes the points apart; about an axis the same with CT, KT, ANGLE, TORQUE."""
    dataset.known(statement, "I", "J", "C", "K", "LENGTH", "FORCE", "CT", "KT", "ANGLE", "TORQUE")
    units, (j, i) = dataset.units, _both(dataset, statement)
    if is_rotational(statement):
        coordinate, sign, offset = _hinge(dataset, j, i)
        unit = units.force * units.length
        return [JointSpringDamper(
            dataset.name(statement), coordinate, unit * statement.numeral("KT", 0.0),
            sign * (statement.numeral("ANGLE", 0.0) - offset), unit * units.time * statement.numeral("CT", 0.0),
            sign * unit * statement.numeral("TORQUE", 0.0),
        )]  # fmt: skip
    unit = units.force / units.length
    return [SpringDamper(
        dataset.name(statement), marker(j), marker(i), unit * statement.numeral("K", 0.0),
        units.length * statement.numeral("LENGTH", 0.0), unit * units.time * statement.numeral("C", 0.0),
        -units.force * statement.numeral("FORCE", 0.0),
    )]  # fmt: skip


def _expression(dataset: Dataset, statement: Statement, key: str, scale: float, **of: Any) -> Expression:
    """The function of a key; raise `_LeftOutError` if it has no counterpart."""
    text = statement.text(key)
    if not text:
        raise statement.error(f"it has no {key}.")
    try:
        return Expression(text, time=dataset.units.time, scale=scale, **of)
    except MechanismError as error:
        raise _LeftOutError(f"is left out: {error}") from None


def _single_force(dataset: Dataset, statement: Statement) -> list[AnyForce]:
    """A force that pushes the points apart, or a torque on I about z_J; with ACTIONONLY on I alone, along z_J."""
    dataset.known(statement, "I", "J", "FUNCTION")
    units, rotational = dataset.units, is_rotational(statement)
    if any(len(flag) > 1 and "ACTIONONLY".startswith(flag) for flag in statement.flags):
        along = _expression(dataset, statement, "FUNCTION", units.force * (units.length if rotational else 1.0))
        i, j = dataset.side(statement, "I"), dataset.side(statement, "J")
        return [_along(dataset, statement, i, j, (None, None, along), rotational)]
    j, i = _both(dataset, statement)
    of: dict[str, Any] = {"i": statement.identifier("I"), "j": statement.identifier("J")}
    if rotational:
        coordinate, sign, offset = _hinge(dataset, j, i)
        unit = units.force * units.length
        law = _expression(dataset, statement, "FUNCTION", sign * unit, of=ANGULAR, sign=sign, offset=offset, **of)
        return [JointForce(dataset.name(statement), coordinate, law)]
    pull = _expression(dataset, statement, "FUNCTION", -units.force, of=LINEAR, unit=units.length, **of)
    return [SpringDamper(dataset.name(statement), marker(j), marker(i), 0.0, actuator=pull)]


def _along(
    dataset: Dataset, statement: Statement, at: Side, axes: Side, components: tuple[Expression | None, ...],
    rotational: bool, torque: tuple[Expression | None, ...] | None = None,
) -> Force:  # fmt: skip
    """A force or a torque at a marker whose components are along the axes of another one."""
    if axes[0].body.name not in (GROUND, at[0].body.name):
        raise _LeftOutError("has the axes of a third part; it is left out")
    on_ground = axes[0].body.name == GROUND
    turn = world(axes).rotation if on_ground else axes[1].rotation
    vectors = Components(components), None if torque is None else Components(torque)
    force, moment = (vectors[1], vectors[0]) if rotational else vectors
    # A marker with the axes in which the components are: of the body's own, or of the ground.
    name = dataset.name(statement)
    if on_ground:
        return Force(name, marker(at), *(_turned(own, turn.as_matrix()) for own in (force, moment)))
    own = at[0].at(Placement(at[1].position, turn))
    return Force(name, own, force, moment, frame="body")


class Turned(eqx.Module):
    """A vector `R f(t)`."""

    vector: Components
    rotation: Float[Array, "3 3"]

    def __call__(self, t: Scalar, *_: object) -> Float[Array, "3"]:
        return self.rotation @ self.vector(t)


def _turned(vector: Components | None, rotation: np.ndarray) -> Any:
    return None if vector is None else Turned(vector, jnp.asarray(rotation))


def _vector_force(dataset: Dataset, statement: Statement) -> list[AnyForce]:
    """Functions of time along the axes of RM, on I; the reaction is on the ground."""
    dataset.known(statement, "I", "J", "JFLOAT", "RM", "FUNCTION", "FX", "FY", "FZ", "TX", "TY", "TZ")
    units, i = dataset.units, dataset.side(statement, "I")
    key = "JFLOAT" if "JFLOAT" in statement.values else "J"
    other = statement.identifier(key)
    if other not in dataset.floating and other not in dataset.markers:
        raise statement.error(f"there is no marker {other}, which {key} names.")
    body = dataset.floating[other] if other in dataset.floating else dataset.markers[other][0].body.name
    if body != GROUND or "FUNCTION" in statement.values:
        why = "has a function of the user's" if body == GROUND else f"has its reaction on {body!r}, not on the ground"
        raise _LeftOutError(f"{why}; it is left out")
    axes = dataset.side(statement, "RM") if "RM" in statement.values else i
    force, torque = (
        tuple(
            _expression(dataset, statement, letter + axis, unit) if letter + axis in statement.values else None
            for axis in "XYZ"
        )
        for letter, unit in (("F", units.force), ("T", units.force * units.length))
    )
    if statement.keyword == "VTORQUE":
        return [_along(dataset, statement, i, axes, torque, rotational=True)]
    return [_along(dataset, statement, i, axes, force, False, torque if any(torque) else None)]


def read_motion(dataset: Dataset, statement: Statement) -> list[Driver]:
    """The driver of a joint's motion; none, with a remark, if it has no counterpart."""
    dataset.known(statement, "JOINT", "I", "J", "FUNCTION", "ICDISP", "ICVEL")
    if "JOINT" not in statement.values:
        dataset.lost(statement, "moves markers and no joint; it is left out")
        return []
    number = statement.identifier("JOINT")
    if number not in dataset.joints:
        dataset.lost(statement, f"moves the joint {number}, which is not there; it is left out")
        return []
    of = [flag for flag in statement.flags if not any(_is(flag, kind) for kind in (_ROTATIONAL, _TRANSLATIONAL))]
    speeds = [flag for flag in of if _is(flag, "VELOCITY")]
    if any(not _is(flag, "DISPLACEMENT") and flag not in speeds for flag in of):
        dataset.lost(statement, f"prescribes {', '.join(of)}, which has no counterpart; it is left out")
        return []
    joint, rotational = dataset.joints[number][0], is_rotational(statement)
    types, coordinate = ((Revolute, Cylindrical), "angle") if rotational else ((Prismatic, Cylindrical), "displacement")
    if not isinstance(joint, types):
        dataset.lost(statement, f"moves {joint.name!r}, a {type(joint).__name__}, along no coordinate: left out")
        return []
    scale = (1.0 if rotational else dataset.units.length) / (dataset.units.time if speeds else 1.0)
    try:
        motion: Any = _expression(dataset, statement, "FUNCTION", scale)
    except _LeftOutError as reason:
        dataset.lost(statement, str(reason))
        return []
    prescribes = "speed" if speeds else "position"
    value = motion.constant
    motion = motion if value is None else value
    return [Driver(dataset.name(statement), f"{joint.name}.{coordinate}", motion, prescribes)]
