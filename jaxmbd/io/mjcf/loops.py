"""Equalities of MJCF, soft there, as constraints."""

import numpy as np

from jaxmbd.io._placement import Owner, Placement, from_quaternion
from jaxmbd.io.mjcf.source import Source
from jaxmbd.model.driver import Driver
from jaxmbd.model.joint.shared import FixedConstraint, Gear, PointConstraint
from jaxmbd.model.mechanism.mechanism import Joint


def constraints(source: Source) -> tuple[list[Joint], list[Driver]]:
    """The constraints of all active equalities; joints that are held at a value get drivers."""
    m, kinds = source.model, source.mujoco.mjtEq
    joints, drivers = [], []
    if m.neq:
        source.remarks.changed("equalities", "are rigid here, whatever their solref and solimp")
    for i in range(m.neq):
        kind = int(m.eq_type[i])
        if not m.eq_active0[i]:
            source.lost("equality", i, "is not active at the start; it is left out")
        elif source.is_disabled("EQUALITY") or source.is_disabled("CONSTRAINT"):
            source.lost("equality", i, "is switched off by <flag>; it is left out")
        elif kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
            joints += _closure(source, i)
        elif kind in (kinds.mjEQ_JOINT, kinds.mjEQ_TENDON):
            part = _coupling(source, i)
            (drivers if isinstance(part, Driver) else joints).extend([part] if part else [])
        else:
            source.lost("equality", i, "couples flexes or geoms, which has no counterpart")
    return joints, drivers


def _closure(source: Source, i: int) -> list[Joint]:
    """A connect or weld between two bodies or two sites."""
    m, kinds = source.model, source.mujoco.mjtEq
    is_weld = int(m.eq_type[i]) == kinds.mjEQ_WELD
    first, second = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
    sides: list[tuple[Owner, Placement]]
    if int(m.eq_objtype[i]) == source.mujoco.mjtObj.mjOBJ_SITE:
        sides = [source.site(first), source.site(second)]
    elif is_weld:
        data = m.eq_data[i]
        sides = [
            (source.owners[first], from_quaternion(data[3:6], data[6:10])),
            (source.owners[second], Placement(data[:3])),
        ]
    else:
        anchors = m.eq_data[i][:3], m.eq_data[i][3:6]
        sides = [(source.owners[k], Placement(at)) for k, at in zip((first, second), anchors, strict=True)]
    if sides[0][0] == sides[1][0]:
        source.lost("equality", i, "is between two points of one body; it is left out")
        return []
    kind = FixedConstraint if is_weld and m.eq_data[i][10] != 0 else PointConstraint
    if is_weld and kind is PointConstraint:
        source.changed("equality", i, "has torquescale=0: its points coincide, its orientation is free")
    return [kind(source.new_name("equality", i), *(owner.at(place) for owner, place in sides))]


def _coupling(source: Source, i: int) -> Gear | Driver | None:
    """`q₁ − q₁₀ = a₀ + a₁ (q₂ − q₂₀)`, the polynomial of an equality of joints or tendons up to its linear term."""
    m = source.model
    of_joints = int(m.eq_type[i]) == source.mujoco.mjtEq.mjEQ_JOINT
    known = source.coordinates if of_joints else source.lengths
    first, second = int(m.eq_obj1id[i]), int(m.eq_obj2id[i])
    a = m.eq_data[i][:5]
    if first not in known or (second >= 0 and second not in known):
        kinds = "joints other than hinges and slides" if of_joints else "tendons that are no sums of joint coordinates"
        source.lost("equality", i, f"couples {kinds}; it is left out")
        return None
    at_start = m.qpos0[m.jnt_qposadr] if of_joints else m.tendon_length0
    reference = [float(at_start[k]) if k >= 0 else 0.0 for k in (first, second)]
    name = source.new_name("equality", i)
    if second < 0:
        return Driver(name, known[first], float(reference[0] + a[0]))
    if np.any(a[2:]):
        source.lost("equality", i, f"has the polynomial {a.tolist()}; only linear ones have a counterpart: left out")
        return None
    phase = float(reference[0] + a[0] - a[1] * reference[1])
    return Gear(name, known[second], known[first], float(a[1]), phase)
