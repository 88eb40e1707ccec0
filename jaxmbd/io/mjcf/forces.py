"""Gravity, and the springs, damping and friction of MJCF."""

import numpy as np

from jaxmbd.io._placement import from_quaternion
from jaxmbd.io.mjcf.source import Source
from jaxmbd.io.mjcf.tendons import tendon_forces
from jaxmbd.model.body.spatial import ground
from jaxmbd.model.force.compliant import Bushing
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.force.joint_forces import JointFriction, JointSpringDamper
from jaxmbd.model.mechanism.mechanism import AnyForce


def passive_forces(source: Source) -> list[AnyForce]:
    """Gravity, and the forces of joints and tendons that need no control."""
    m = source.model
    forces: list[AnyForce] = []
    if m.opt.gravity.any() and not source.is_disabled("GRAVITY"):
        forces.append(Gravity(m.opt.gravity, source.names.made("gravity")))
    for j in range(m.njnt):
        forces += _of_joint(source, j)
    for k in range(m.ntendon):
        forces += tendon_forces(source, k)
    return forces


def _of_joint(source: Source, j: int) -> list[AnyForce]:
    m, dof = source.model, int(source.model.jnt_dofadr[j])
    stiffness = 0.0 if source.is_disabled("SPRING") else float(m.jnt_stiffness[j])
    damping = 0.0 if source.is_disabled("DAMPER") else float(m.dof_damping[dof])
    friction = 0.0 if source.is_disabled("FRICTIONLOSS") else float(m.dof_frictionloss[dof])
    _remark_on_joint(source, j, dof)
    forces: list[AnyForce] = []
    if j not in source.coordinates:
        if friction:
            source.lost("joint", j, "has frictionloss on several coordinates, which is left out")
        if stiffness or damping:
            forces.append(_bushing(source, j, stiffness, damping))
        return forces
    coordinate = source.coordinates[j]
    joint = source.joint_names[j]
    if stiffness or damping:
        free = float(m.qpos_spring[m.jnt_qposadr[j]])
        name = source.names.made("spring", joint)
        forces.append(JointSpringDamper(name, coordinate, stiffness, free, damping))
    if friction:
        name = source.names.made("friction", joint)
        dry = JointFriction(name, coordinate, coulomb=friction)
        forces.append(dry)
        width = float(dry.width)
        source.lost("joint", j, f"has frictionloss: dry friction, whose sign is smoothed over {width:g} rad/s or m/s")
    return forces


def _remark_on_joint(source: Source, j: int, dof: int) -> None:
    m = source.model
    if m.jnt_limited[j] and not source.is_disabled("LIMIT"):
        source.lost("joint", j, f"has the range {m.jnt_range[j].tolist()}, which nothing enforces; add a JointStop")
    if source.extra("jnt_stiffnesspoly", j) or source.extra("dof_dampingpoly", dof):
        source.lost("joint", j, "has stiffness or damping of higher order; only the linear part is kept")
    if source.extra("jnt_springyield", j):
        source.lost("joint", j, "has a spring that yields; it does not here")


def _bushing(source: Source, j: int, stiffness: float, damping: float) -> Bushing:
    """The spring and damping of a ball or free joint: `−k` times the rotation vector, and the offset of a free one."""
    m = source.model
    is_ball = int(m.jnt_type[j]) == source.mujoco.mjtJoint.mjJNT_BALL
    a, b = source.markers[j]
    if not is_ball:
        rest = m.qpos_spring[m.jnt_qposadr[j] :]
        placement = from_quaternion(rest[:3], rest[3:7])
        a = ground.at(*placement.position, rotation=placement.euler_parameters)
    along = np.zeros(3) if is_ball else np.ones(3)
    pattern = np.concatenate([along, np.ones(3)])
    owner = source.owners[int(m.jnt_bodyid[j])].body.name
    return Bushing(source.names.made("spring", owner), a, b, stiffness * pattern, damping * pattern)
