"""Bodies and joints of MJCF.

Each joint of a body becomes one joint; where a body has several, they are joined by massless links:
`X_parent_child = X₀ J₁(q₁) J₂(q₂) …`, every `J` about an axis in the child's own frame.
"""

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._placement import Owner, Placement, along_z, from_quaternion
from jaxmbd.io.mjcf.source import Source
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.joint.shared import Weld
from jaxmbd.model.joint.spatial import Prismatic, Revolute, Spherical
from jaxmbd.model.mechanism.mechanism import Joint


def bodies_and_joints(source: Source) -> tuple[list[Body], list[Joint]]:
    """All bodies and joints."""
    bodies, joints = [], []
    for i in range(1, source.model.nbody):
        body = _body(source, i)
        bodies.append(body)
        links, own = _joints(source, i)
        bodies += links
        joints += own
    return bodies, joints


def _body(source: Source, i: int) -> Body:
    m, d = source.model, source.data
    axes = Rotation.from_quat(m.body_iquat[i], scalar_first=True).as_matrix()
    inertia = axes @ np.diag(m.body_inertia[i]) @ axes.T
    pose = np.concatenate([d.xipos[i], d.xquat[i]])
    try:
        body = Body(source.new_name("body", i), m.body_mass[i], (inertia + inertia.T) / 2, pose)
    except MechanismError as error:
        raise source.remarks.error(source.part("body", i), str(error), source.line("body", i)) from None
    source.owners[i] = Owner(body, Placement(-m.body_ipos[i]))
    return body


def _joints(source: Source, i: int) -> tuple[list[Body], list[Joint]]:
    """The massless links and the joints between a body and its parent."""
    m, kinds = source.model, source.mujoco.mjtJoint
    parent, child = source.owners[int(m.body_parentid[i])], source.owners[i]
    pose = np.concatenate([source.data.xpos[i], source.data.xquat[i]])
    before = from_quaternion(m.body_pos[i], m.body_quat[i])
    own, links, joints = list(source.joints_of(i)), [], []
    if not own:
        weld = Weld(source.names.made("weld", child.body.name), parent.at(before), child.at())
        return [], [weld]
    if int(m.jnt_type[own[0]]) == kinds.mjJNT_FREE:
        joint = own[0]
        source.markers[joint] = ground.at(), child.at()
        if m.dof_armature[m.jnt_dofadr[joint] :][:6].any():
            source.lost("joint", joint, "has armature on all six coordinates, which is left out")
        return [], []
    for joint in own:
        after = child
        if joint != own[-1]:
            link = Body(source.names.made("link", child.body.name), 0.0, np.zeros(3), pose)
            links.append(link)
            after = Owner(link)
        joints.append(_joint(source, joint, parent, before, after))
        parent, before = after, Placement()
    return links, joints


def _joint(source: Source, j: int, parent: Owner, before: Placement, child: Owner) -> Joint:
    """A hinge, slide or ball, whose coordinate is MuJoCo's `qpos`: its reference is in the first marker."""
    m, kinds = source.model, source.mujoco.mjtJoint
    name = source.joint_names[j] = source.new_name("joint", j, child.body.name)
    address, kind = int(m.jnt_qposadr[j]), int(m.jnt_type[j])
    if kind == kinds.mjJNT_BALL:
        at = Placement(m.jnt_pos[j])
        source.markers[j] = parent.at(before @ at), child.at(at)
        if m.dof_armature[m.jnt_dofadr[j]]:
            source.lost("joint", j, "has armature about all three axes, which is left out")
        return Spherical(name, *source.markers[j])
    at, reference = Placement(m.jnt_pos[j], along_z(m.jnt_axis[j])), float(m.qpos0[address])
    if kind == kinds.mjJNT_HINGE:
        zero = Placement(rotation=Rotation.from_rotvec([0.0, 0.0, -reference]))
        joint, source.coordinates[j] = Revolute, f"{name}.angle"
    else:
        zero = Placement(np.array([0.0, 0.0, -reference]))
        joint, source.coordinates[j] = Prismatic, f"{name}.displacement"
    source.markers[j] = parent.at(before @ at @ zero), child.at(at)
    return joint(name, *source.markers[j], armature=float(m.dof_armature[m.jnt_dofadr[j]]) or None)


def start(source: Source) -> tuple[dict[str, float], dict[str, float]]:
    """The coordinates and the nonzero speeds at the start, by name."""
    m, kinds, guess, speeds = source.model, source.mujoco.mjtJoint, {}, {}
    for j in range(m.njnt):
        q, v = source.qpos[m.jnt_qposadr[j] :], source.qvel[m.jnt_dofadr[j] :]
        owner = source.owners[int(m.jnt_bodyid[j])]
        if j in source.coordinates:
            guess[source.coordinates[j]] = float(q[0])
            speeds[f"{source.coordinates[j]}_rate"] = float(v[0])
        elif int(m.jnt_type[j]) == kinds.mjJNT_BALL:
            name = source.joint_names[j]
            guess |= {f"{name}.e{k}": float(q[k]) for k in range(4)}
            speeds |= {f"{name}.omega_{axis}": float(v[k]) for k, axis in enumerate("xyz")}
        else:
            centre = source.model.body_ipos[m.jnt_bodyid[j]]
            turn = Rotation.from_quat(q[3:7], scalar_first=True)
            velocity = v[:3] + turn.apply(np.cross(v[3:6], centre))
            speeds |= {f"{owner.body.name}.v{axis}": float(velocity[k]) for k, axis in enumerate("xyz")}
            speeds |= {f"{owner.body.name}.omega_{axis}": float(v[3 + k]) for k, axis in enumerate("xyz")}
    return guess, {name: value for name, value in speeds.items() if value}
