"""Actuators of MJCF at constant controls: `f = (g₀ + g₁ l + g₂ l̇) u + b₀ + b₁ l + b₂ l̇` along a length `l`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmbd.io.mjcf.source import Source
from jaxmbd.model.force.joint_forces import JointForce, JointSpringDamper
from jaxmbd.model.force.marker_forces import Force, SpringDamper


@dataclass(frozen=True)
class _Law:
    """`f = constant + by_length l + by_rate l̇` at the control of the start."""

    constant: float
    by_length: float
    by_rate: float

    @property
    def is_constant(self) -> bool:
        return not (self.by_length or self.by_rate)


def actuators(source: Source) -> list[Any]:
    """The forces of all actuators; the control is the one of the start, and its value a number of the force."""
    forces = []
    m = source.model
    for i in range(getattr(m, "nactuator", m.nu)):  # older versions: one control for each actuator
        if source.is_disabled("ACTUATION") or m.opt.disableactuator & (1 << int(m.actuator_group[i])):
            source.changed("actuator", i, "is switched off in <option>; it is left out")
            continue
        law = _law(source, i)
        forces += [] if law is None else _forces(source, i, law)
    return forces


def _law(source: Source, i: int) -> _Law | None:
    m, mj = source.model, source.mujoco
    address = int(getattr(m, "actuator_ctrladr", np.arange(m.nu))[i])
    inputs = int(getattr(m, "actuator_ctrlnum", np.ones(m.nu, int))[i])
    gains = int(m.actuator_gaintype[i]) in (mj.mjtGain.mjGAIN_FIXED, mj.mjtGain.mjGAIN_AFFINE)
    biases = int(m.actuator_biastype[i]) in (mj.mjtBias.mjBIAS_NONE, mj.mjtBias.mjBIAS_AFFINE)
    if not (gains and biases and inputs == 1):
        source.lost("actuator", i, "is a muscle, a motor with dynamics or one of a plugin; it is left out")
        return None
    if int(m.actuator_dyntype[i]) != mj.mjtDyn.mjDYN_NONE:
        source.lost("actuator", i, "has dynamics of its activation; it is left out")
        return None
    for field in ("actuator_delay", "actuator_damping", "actuator_dampingpoly", "actuator_armature"):
        if source.extra(field, i):
            source.lost("actuator", i, f"has {field.partition('_')[2]}, which is left out")
    u, (low, high) = float(source.ctrl[address]), m.actuator_ctrlrange[i]
    if m.actuator_ctrllimited[i] and not source.is_disabled("CLAMPCTRL"):
        u = min(max(u, float(low)), float(high))
    gain = m.actuator_gainprm[i][:3] * (1.0, *(int(m.actuator_gaintype[i]) == mj.mjtGain.mjGAIN_AFFINE,) * 2)
    bias = m.actuator_biasprm[i][:3] * (int(m.actuator_biastype[i]) == mj.mjtBias.mjBIAS_AFFINE)
    law = _Law(*(gain * u + bias).tolist())
    if m.actuator_forcelimited[i]:
        low, high = m.actuator_forcerange[i].tolist()
        if law.is_constant:
            return _Law(min(max(law.constant, low), high), 0.0, 0.0)
        source.lost("actuator", i, f"limits its force to {[low, high]}, which nothing enforces")
    return law


def _forces(source: Source, i: int, law: _Law) -> list[Any]:
    m, kinds = source.model, source.mujoco.mjtTrn
    transmission, (target, reference) = int(m.actuator_trntype[i]), m.actuator_trnid[i].tolist()
    gear = float(m.actuator_gear[i][0])
    if transmission in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT) and target in source.coordinates:
        return [_along_coordinate(source, i, law, source.coordinates[target], gear)]
    if transmission == kinds.mjTRN_TENDON:
        return _along_tendon(source, i, law, target, gear)
    if transmission == kinds.mjTRN_SITE and reference < 0 and law.is_constant:
        owner, placement = source.site(target)
        force, torque = law.constant * m.actuator_gear[i][:3], law.constant * m.actuator_gear[i][3:]
        return [Force(source.new_name("actuator", i), owner.at(placement), force, torque, frame="body")]
    source.lost("actuator", i, "acts neither on a hinge, a slide, a straight tendon nor a site; it is left out")
    return []


def _along_coordinate(source: Source, i: int, law: _Law, coordinate: str, gear: float) -> Any:
    name, constant = source.new_name("actuator", i), gear * law.constant
    if law.is_constant:
        return JointForce(name, coordinate, constant)
    return JointSpringDamper(name, coordinate, -(gear**2) * law.by_length, 0.0, -(gear**2) * law.by_rate, constant)


def _along_tendon(source: Source, i: int, law: _Law, k: int, gear: float) -> list[Any]:
    """Along a straight tendon, or a fixed one: its length is `Σ c q`, so that joint k gets `c_k` times the force."""
    m, wraps = source.model, source.mujoco.mjtWrap
    first, count = int(m.tendon_adr[k]), int(m.tendon_num[k])
    path, objects = m.wrap_type[first : first + count].tolist(), m.wrap_objid[first : first + count].tolist()
    on_path = zip(path, objects, strict=True)
    joints = [j for kind, j in on_path if kind == wraps.mjWRAP_JOINT and j in source.coordinates]
    if len(joints) == count and (count == 1 or law.is_constant):
        ratios = (gear * m.wrap_prm[first : first + count]).tolist()
        pairs = zip((source.coordinates[j] for j in joints), ratios, strict=True)
        return [_along_coordinate(source, i, law, coordinate, ratio) for coordinate, ratio in pairs]
    if count == 2 and all(kind == wraps.mjWRAP_SITE for kind in path):
        a, b = (owner.at(place) for owner, place in map(source.site, objects))
        if a.body != b.body:
            # A positive force lengthens a tendon, a positive tension shortens it.
            square = gear**2
            terms = -square * law.by_length, 0.0, -square * law.by_rate, -gear * law.constant
            return [SpringDamper(source.new_name("actuator", i), a, b, *terms)]
    source.lost("actuator", i, "pulls at a tendon with a path of its own; it is left out")
    return []
