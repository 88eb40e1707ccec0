"""`in_space`: a mechanism of the plane as one in space, whose plane is that of x and y.

Each part has its counterpart in space, with the same name: markers lie in the plane, axes of hinges are along z. Bodies
that no joint holds in the plane get one that does. Laws of a user's own of frames in the plane have no counterpart,
since frames in space have no angles that count whole turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar, combined, constant, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.body import planar as plane
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMarker
from jaxmbd.model.body.names import name_fields
from jaxmbd.model.body.spatial import Body, Marker, MovingMarker, ground
from jaxmbd.model.controller.controller import AbstractController
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.compliant import Bushing, PlaneContact
from jaxmbd.model.force.force import AbstractJointForce, Gravity
from jaxmbd.model.force.hydraulics import HydraulicCylinder
from jaxmbd.model.force.joint_forces import JointSpringDamper
from jaxmbd.model.force.load_friction import LoadFriction
from jaxmbd.model.force.marker_forces import Force, PointDrag, SpringDamper, Torque, TorsionalSpringDamper
from jaxmbd.model.joint import planar as pl
from jaxmbd.model.joint.gears import Differential, GearMesh, PlanetaryGear
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.shared import FixedConstraint, Gear, PointConstraint, RackAndPinion, Rod, Tendon, Weld
from jaxmbd.model.joint.spatial import Planar, Prismatic, Revolute
from jaxmbd.model.joint.spatial_constraints import PerpendicularAxes
from jaxmbd.model.mechanism.mechanism import Mechanism, Part, check_mechanism
from jaxmbd.model.sensor import (
    Accelerometer,
    AngularAcceleration,
    AngularVelocity,
    Distance,
    Gyroscope,
    Point,
    PointAcceleration,
    PointVelocity,
    Scaled,
)
from jaxmbd.space import rotation
from jaxmbd.state.output_channels import read
from jaxmbd.state.state import State, check_state, state_of
from jaxmbd.upstream.equinox_internals import with_fields

Otherwise: TypeAlias = Callable[[Part, str], None]  # what is done about a part without a counterpart, and why it is one

_HOLDING = (pl.Revolute, pl.Prismatic, Weld, FixedConstraint)  # hold a body in the plane of another one
# Parts whose law is the same in both spaces, but for their markers and the names of coordinates.
_SAME = (
    *(FixedConstraint, PointConstraint, Rod, Weld),
    *(Differential, Gear, GearMesh, PlanetaryGear, RackAndPinion, Tendon),
    *(HydraulicCylinder, PointDrag, SpringDamper, AbstractJointForce, Driver, AbstractController),
    *(Accelerometer, AngularAcceleration, AngularVelocity, Distance, Gyroscope),
    *(Point, PointAcceleration, PointVelocity, Scaled),
)
_Z_ALONG_X = np.array([0.5, 0.5, 0.5, 0.5])  # axes (y, z, x): a slider's axis is x in the plane, z in space
_Z_ALONG_Y = np.array([0.5, -0.5, -0.5, -0.5])  # axes (z, x, y): a plane's normal is y in the plane, z in space


def in_space(mechanism: Mechanism) -> Mechanism:
    """A mechanism of the plane in space, in the plane of x and y. It moves as the mechanism does.

    | in the plane | in space |
    |---|---|
    | body | body with the same moment of inertia about z; those about x and y are half of it, as of a flat disc |
    | revolute, prismatic joint | the same about z, along the first marker's x axis |
    | pin in slot | in the spanning tree a slider and a hinge with a massless link between them, else two rows |
    | relative angle | perpendicular axes |
    | torsional spring-damper | one of a hinge between the same bodies |
    | bushing, contact, gravity, constant force and torque | the same, in the plane |
    | other joints, gears, tendons, forces along coordinates, drivers, controllers, sensors | the same |
    | floating body | a body with a planar joint `"rod_plane"` to the ground |

    Coordinates have the same names, but for those of bodies and pins in slots.

    **Arguments:** `mechanism` in the plane, in absolute or joint coordinates; one in space is returned as it is.

    **Returns:** a `Mechanism` in space, in coordinates of the same kind and with the same spanning tree.

    **Raises:** `MechanismError` that names a part without a counterpart: a flexible body, a law of a user's own of
    frames or of generalized coordinates, an `AngleBetween`, or dry friction by loads.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> mbd.in_space(pendulum)["O"].coordinate_names
        ('angle',)
    """
    return embedded(mechanism, _refuse)


def state_in_space(mechanism: Mechanism, state: State) -> State:
    """The state of `in_space(mechanism)` in which all bodies are, and move, as in a state of the mechanism.

    **Arguments:** `mechanism` in the plane; `state`, a state of it.

    **Raises:** `MechanismError` if the state belongs to another mechanism, and as `in_space`.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> print(mbd.state_in_space(pendulum.mechanism, pendulum.state())["rod.z"])
        0.0
    """
    return embedded_state(mechanism, in_space(mechanism), state)


def _refuse(part: Part, reason: str) -> None:
    raise MechanismError(f"in_space: {type(part).__name__} {part.name!r} {reason}.")


def embedded(mechanism: Mechanism, otherwise: Otherwise) -> Mechanism:
    """`in_space`, without the forces, sensors and controllers that have no counterpart; `otherwise` is told of them."""
    check_mechanism(mechanism)
    if mechanism.space.dim == 3:
        return mechanism
    if mechanism.speeds is not None:
        raise MechanismError(
            "in_space: the mechanism has speeds of its own, GeneralizedSpeeds, which are of the plane."
        )
    own = _Embedding(mechanism)
    bodies, joints = _bodies(own), [joint for part in mechanism.joints for joint in _joint(own, part)]
    bodies += own.links
    joints += [Planar(name, ground.at(), Marker(body)) for body, name in own.planes.items()]
    groups: list[list[Any]] = []
    for parts in (mechanism.forces, mechanism.drivers, mechanism.sensors, mechanism.controllers):
        groups.append([])
        for part in parts:
            try:
                groups[-1].append(_other(own, part))
            except _MissingError as reason:
                otherwise(part, str(reason))
    forces, drivers, sensors, controllers = groups
    in_tree = {*mechanism.tree.joints, *own.planes.values(), *own.slides.values()}
    cuts = [joint.name for joint in joints if isinstance(joint, AbstractTreeJoint) and joint.name not in in_tree]
    return Mechanism(
        bodies, joints, forces, drivers, sensors, mechanism.floating, mechanism.coordinates,
        cuts if mechanism.coordinates == "joint" else (), None, controllers,
    )  # fmt: skip


def embedded_state(mechanism: Mechanism, spatial: Mechanism, state: State) -> State:
    """`state_in_space` for a mechanism `spatial` that `embedded` returned."""
    check_state(mechanism, state)
    if spatial is mechanism:
        return state
    own = _Embedding(mechanism)
    here = {there: name for name, there in own.names.items()}
    angles = {f"{body}.{part}": (body, k) for body in own.bodies for k, part in enumerate(("e0", "e1", "e2", "e3"))}

    def value(name: str) -> Array:
        owner, _, component = name.partition(".")
        if name in angles:
            half = 0.5 * state[f"{angles[name][0]}.theta"]
            return (jnp.cos(half), jnp.zeros_like(half), jnp.zeros_like(half), jnp.sin(half))[angles[name][1]]
        if owner in own.bodies and component in ("z", "vz", "omega_x", "omega_y"):
            return jnp.zeros_like(state.t)
        source = here.get(name, name)
        return state[source] if source in state.names else jnp.asarray(read(mechanism, state, source))

    q = jnp.stack([value(name) for name in spatial.coordinate_names])
    v = jnp.stack([value(name) for name in spatial.speed_names]) if spatial.nv else jnp.zeros((0,), q.dtype)
    z = state.z if spatial.layout.z.names == mechanism.layout.z.names else None
    unknown_rank = State(state.t, q, v, spatial.layout).rank
    return state_of(spatial, state.t, q, v, unknown_rank, state.result, z)


class _MissingError(Exception):
    """A part has no counterpart in space; its text says why."""


@dataclass
class _Embedding:
    """A mechanism of the plane, with what its counterpart has in addition.

    `planes`: the joints to the ground that hold bodies in the plane, by the names of these; `slides`: of pins in slots
    in the spanning tree, the sliders; `links`, the massless bodies between slider and hinge; `names`: coordinates and
    rates that have other names in space.
    """

    mechanism: Mechanism
    planes: dict[str, str] = field(default_factory=dict)
    slides: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    links: list[Body] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {part.name for part in self.mechanism.parts()}

        def new(stem: str) -> str:
            while stem in taken:
                stem += "_"
            taken.add(stem)
            return stem

        self.planes = {body: new(f"{body}_plane") for body in _unheld(self.mechanism)}
        for joint in self.mechanism.joints:
            if isinstance(joint, pl.PinInSlot) and joint.name in self.mechanism.tree.joints:
                self.slides[joint.name], self.pins[joint.name] = new(f"{joint.name}_slide"), new(f"{joint.name}_pin")
        self.names = dict(self._renamed())

    @property
    def bodies(self) -> set[str]:
        """The names of the bodies in the plane."""
        return {body.name for body in self.mechanism.bodies}

    def _renamed(self) -> Iterator[tuple[str, str]]:
        for name, slide in self.slides.items():
            for end in ("displacement", "displacement_rate"):
                yield f"{name}.{end}", f"{slide}.{end}"
        for body in self.bodies:
            if body not in self.planes:
                yield f"{body}.omega", f"{body}.omega_z"
        for body, joint in self.planes.items():
            if self.mechanism.coordinates == "joint":
                for here, there in {"x": "x", "y": "y", "vx": "x_rate", "vy": "y_rate"}.items():
                    yield f"{body}.{here}", f"{joint}.{there}"
                yield f"{body}.omega", f"{joint}.angle_rate"
            else:
                yield f"{body}.omega", f"{body}.omega_z"
            yield f"{body}.theta", f"{joint}.angle"
        for joint in self.mechanism.joints:
            match joint:
                case pl.Revolute(a=a, b=b) if a.body == GROUND and b.body not in self.planes and _is_upright(joint):
                    yield f"{b.body}.theta", f"{joint.name}.angle"

    def name(self, name: str) -> str:
        """The name in space of a coordinate or another quantity."""
        owner, _, component = name.partition(".")
        if owner in self.bodies and component == "theta" and name not in self.names:
            raise _MissingError(f"refers to {name!r}, and bodies in space have no angle: refer to that of a joint")
        cut = [joint.name for joint in self.mechanism.joints if isinstance(joint, pl.PinInSlot)]
        if owner in cut and owner not in self.slides:
            raise _MissingError(f"refers to {name!r} of a PinInSlot outside the spanning tree, which is rows in space")
        return self.names.get(name, name)

    def angle_between(self, a: plane.Marker, b: plane.Marker) -> tuple[str, int, Scalar]:
        """A coordinate c, a sign s and a number d with `θ_b − θ_a = s c + d`, of a hinge between the bodies."""
        for joint in self.mechanism.joints:
            if isinstance(joint, pl.Revolute) or (isinstance(joint, pl.PinInSlot) and joint.name in self.slides):
                first, second = joint.a, joint.b
                if {first.body, second.body} == {a.body, b.body}:
                    sign = 1 if first.body == a.body else -1
                    turned = _angle(second) - _angle(first)
                    return f"{joint.name}.angle", sign, b.angle - a.angle - sign * turned
        for one, other, sign in ((a, b, 1), (b, a, -1)):
            if one.body == GROUND and other.body in self.planes:
                return f"{self.planes[other.body]}.angle", sign, b.angle - a.angle
        raise _MissingError(
            f"turns {b.body!r} against {a.body!r}, and there is no Revolute between them, whose angle it would act on"
        )


def _unheld(mechanism: Mechanism) -> list[str]:
    """A body of each group that no joint holds in the plane of the ground; in joint coordinates the floating ones."""
    if mechanism.coordinates == "joint":
        return [mechanism.bodies[branch.child].name for branch in mechanism.tree.branches if branch.floating]
    group = {name: name for name in (GROUND, *(body.name for body in mechanism.bodies))}

    def root(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    found = []
    for joint in mechanism.joints:
        if isinstance(joint, _HOLDING):
            group[root(joint.a.body)] = root(joint.b.body)
    for body in mechanism.bodies:
        if root(body.name) != root(GROUND):
            group[root(body.name)] = root(GROUND)
            found.append(body.name)
    return found


def _angle(marker: AbstractMarker) -> Scalar:
    assert isinstance(marker, plane.Marker | plane.MovingMarker)
    return marker.angle


def _is_upright(joint: pl.Revolute) -> bool:
    """Whether the angle of a hinge is that of its second body."""
    turned = _angle(joint.b) - _angle(joint.a)
    return bool(is_concrete(turned) and float(turned) == 0.0)


class InPlane(eqx.Module):
    """A motion `(x, y)` in the plane as one in space, `(x, y, 0)`."""

    motion: Function

    def __call__(self, t: Scalar) -> Float[Array, "3"]:
        return jnp.append(self.motion(t), 0.0)


class TurnedActuator(eqx.Module):
    """A torque `τ(t, φ, φ̇)` as one along a coordinate `c` with `φ = s c + d`: `s τ(t, s c + d, s ċ)`."""

    torque: Function
    sign: int = eqx.field(static=True)
    offset: Scalar

    def __call__(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return self.sign * self.torque(t, self.sign * coordinate + self.offset, self.sign * rate)


def _marker(marker: AbstractMarker, turn: np.ndarray | None = None, angle: Scalar | float = 0.0) -> AbstractMarker:
    """A marker in the plane of x and y, turned further by an angle about z and then by `turn`."""
    assert isinstance(marker, plane.Marker | plane.MovingMarker)
    about_z = rotation.about("z", marker.angle + angle)
    turned = about_z if turn is None else rotation.multiply(about_z, constant(turn))
    if isinstance(marker, plane.MovingMarker):
        return MovingMarker(marker.body, InPlane(marker.motion), turned)
    return Marker(marker.body, _with_zero(marker.position), turned)


def _with_zero(vector: Float[Array, "2"]) -> Float[Array, "3"]:
    return combined("concatenate", [vector, np.zeros(1, vector.dtype)])


def _along_z(moment: Scalar) -> Float[Array, "3"]:
    zero = jnp.zeros_like(moment)
    return jnp.stack([zero, zero, moment])


def _bodies(own: _Embedding) -> list[AbstractBody]:
    bodies: list[AbstractBody] = []
    for body in own.mechanism.bodies:
        if not isinstance(body, plane.Body):
            _refuse(body, "is a flexible body of the plane, which has no counterpart")
        x, y, theta = body.pose
        pose = jnp.concatenate([jnp.stack([x, y, jnp.zeros_like(x)]), rotation.about("z", theta)])
        bodies.append(Body(body.name, body.mass, body.inertia * jnp.diag(jnp.array([0.5, 0.5, 1.0])), pose))
    return bodies


def _joint(own: _Embedding, joint: Any) -> list[Any]:
    match joint:
        case pl.Revolute():
            return [Revolute(joint.name, _marker(joint.a), _marker(joint.b), joint.armature)]
        case pl.Prismatic():
            return [Prismatic(joint.name, _marker(joint.a, _Z_ALONG_X), _marker(joint.b, _Z_ALONG_X), joint.armature)]
        case pl.PinInSlot():
            return _pin_in_slot(own, joint)
        case pl.RelativeAngle():
            b = _marker(joint.b, _Z_ALONG_X, -joint.angle)
            return [PerpendicularAxes(joint.name, _marker(joint.a, _Z_ALONG_Y), b)]
        case _ if isinstance(joint, _SAME):
            try:
                return [_same(own, joint)]
            except _MissingError as reason:
                _refuse(joint, str(reason))
    _refuse(joint, "is defined in the plane and has no counterpart in space")
    raise AssertionError(joint)


def _pin_in_slot(own: _Embedding, joint: pl.PinInSlot) -> list[Any]:
    a, b = _marker(joint.a), _marker(joint.b)
    if joint.name not in own.slides:
        return [PointConstraint(joint.name, a, b, without=("x",))]
    link = Body(own.pins[joint.name], 0.0, (0.0, 0.0, 0.0))
    own.links.append(link)
    slide = Prismatic(own.slides[joint.name], _marker(joint.a, _Z_ALONG_X), Marker(link.name, rotation=_Z_ALONG_X))
    return [slide, Revolute(joint.name, link.at(), b)]


def _other(own: _Embedding, part: Any) -> Any:
    match part:
        case Gravity():
            return Gravity(_with_zero(part.vector(own.mechanism.space)), part.name)
        case Force() if not callable(part.force) and not callable(part.torque):
            return Force(part.name, _marker(part.at), _with_zero(part.force), _along_z(part.torque), part.frame)
        case Torque() if not callable(part.torque):
            return Torque(part.name, _marker(part.on), _along_z(part.torque), _marker(part.from_), part.frame)
        case TorsionalSpringDamper():
            return _torsional(own, part)
        case Bushing():
            stiffness, damping = (jnp.zeros(6, k.dtype).at[jnp.array([0, 1, 5])].set(k)
                                  for k in (part.stiffness, part.damping))  # fmt: skip
            return Bushing(part.name, _marker(part.a), _marker(part.b), stiffness, damping)
        case PlaneContact():
            return with_fields(part, plane=_marker(part.plane, _Z_ALONG_Y), point=_marker(part.point))
        case LoadFriction():
            raise _MissingError("rubs by the load of a joint, which is others in space, where joints hold more")
        case _ if isinstance(part, _SAME):
            return _same(own, part)
    raise _MissingError("is a law of the plane and has no counterpart in space")


def _torsional(own: _Embedding, spring: TorsionalSpringDamper) -> JointSpringDamper:
    """With `φ = s c + d`: the effort along c is s times the torque."""
    coordinate, sign, offset = own.angle_between(spring.a, spring.b)
    actuator = spring.actuator
    actuator = TurnedActuator(actuator, sign, offset) if callable(actuator) else sign * actuator
    free = sign * (spring.free_angle - offset)
    return JointSpringDamper(spring.name, coordinate, spring.stiffness, free, spring.damping, actuator)


def _same(own: _Embedding, part: Any) -> Any:
    """A part with the same law, at markers in space and of coordinates by their names in space."""
    names = name_fields(type(part)) - {"name"}
    texts = {"of", "drives"} if isinstance(part, AbstractController) else {"of"} if isinstance(part, Scaled) else set()
    changed: dict[str, Any] = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if each.name in names | texts:
            changed[each.name] = own.name(value) if isinstance(value, str) else tuple(map(own.name, value))
        elif isinstance(value, AbstractMarker):
            changed[each.name] = _marker(value)
        elif isinstance(value, AbstractJointForce):
            changed[each.name] = _same(own, value)
    return with_fields(part, **changed)
