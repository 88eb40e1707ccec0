"""Actuators of MJCF at constant controls: `f = (g₀ + g₁ l + g₂ l̇) u + b₀ + b₁ l + b₂ l̇` along a length `l`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmbd.io.mjcf.source import Source
from jaxmbd.io.mjcf.tendons import straight_ends
from jaxmbd.model.force.joint_forces import JointForce, JointSpringDamper
from jaxmbd.model.force.marker_forces import Force, SpringDamper
from jaxmbd.model.mechanism.mechanism import AnyForce


@dataclass(frozen=True)
class _Law:
    """`f = constant + by_length l + by_rate l̇` at the control of the start; `losses`: what it leaves out."""

    constant: float
    by_length: float
    by_rate: float
    losses: tuple[str, ...] = ()

    @property
    def is_constant(self) -> bool:
        return not (self.by_length or self.by_rate)


def _of_joints(mujoco: Any) -> tuple[int, int]:
    """The transmissions to a joint."""
    return mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT


def actuators(source: Source) -> list[AnyForce]:
    """The forces of all actuators; the control is the one of the start, and its value a number of the force."""
    forces = []
    m = source.model
    for i in range(getattr(m, "nactuator", m.nu)):  # older versions: one control for each actuator
        if source.is_disabled("ACTUATION") or m.opt.disableactuator & (1 << int(m.actuator_group[i])):
            source.changed("actuator", i, "is switched off in <option>; it is left out")
            continue
        law = _law(source, i)
        own = [] if law is None else _forces(source, i, law)
        for loss in law.losses if law is not None and own else ():
            source.lost("actuator", i, loss)
        forces += own
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
    further = ("actuator_delay", "actuator_damping", "actuator_dampingpoly", "actuator_armature")
    losses = [f"has {field.partition('_')[2]}, which is left out" for field in further if source.extra(field, i)]
    joint = int(m.actuator_trnid[i][0])
    if int(m.actuator_trntype[i]) in _of_joints(mj) and m.jnt_actfrclimited[joint]:
        losses.append(
            f"has a joint that limits its actuators to {m.jnt_actfrcrange[joint].tolist()}: nothing does so here"
        )
    u, (low, high) = float(source.ctrl[address]), m.actuator_ctrlrange[i]
    if m.actuator_ctrllimited[i] and not source.is_disabled("CLAMPCTRL"):
        u = min(max(u, float(low)), float(high))
    gain = m.actuator_gainprm[i][:3] * (1.0, *(int(m.actuator_gaintype[i]) == mj.mjtGain.mjGAIN_AFFINE,) * 2)
    bias = m.actuator_biasprm[i][:3] * (int(m.actuator_biastype[i]) == mj.mjtBias.mjBIAS_AFFINE)
    constant, by_length, by_rate = (gain * u + bias).tolist()
    if m.actuator_forcelimited[i]:
        low, high = m.actuator_forcerange[i].tolist()
        if by_length or by_rate:
            losses.append(f"limits its force to {[low, high]}, which nothing enforces")
        else:
            constant = min(max(constant, low), high)
    return _Law(constant, by_length, by_rate, tuple(losses))


def _forces(source: Source, i: int, law: _Law) -> list[AnyForce]:
    m, kinds = source.model, source.mujoco.mjtTrn
    transmission, (target, reference) = int(m.actuator_trntype[i]), m.actuator_trnid[i].tolist()
    gear = float(m.actuator_gear[i][0])
    if transmission in _of_joints(source.mujoco) and target in source.coordinates:
        return [_along_coordinate(source, i, law, source.coordinates[target], gear)]
    if transmission == kinds.mjTRN_TENDON:
        return _along_tendon(source, i, law, target, gear)
    if transmission == kinds.mjTRN_SITE and reference < 0 and law.is_constant:
        owner, placement = source.site(target)
        force, torque = law.constant * m.actuator_gear[i][:3], law.constant * m.actuator_gear[i][3:]
        return [Force(source.new_name("actuator", i), owner.at(placement), force, torque, frame="body")]
    source.lost("actuator", i, "acts neither on a hinge, a slide, a straight tendon nor a site; it is left out")
    return []


def _along_coordinate(
    source: Source, i: int, law: _Law, coordinate: str, gear: float
) -> JointForce | JointSpringDamper:
    name, constant = source.new_name("actuator", i), gear * law.constant
    source.efforts[i] = f"{name}.effort", gear
    if law.is_constant:
        return JointForce(name, coordinate, constant)
    return JointSpringDamper(name, coordinate, -(gear**2) * law.by_length, 0.0, -(gear**2) * law.by_rate, constant)


def _along_tendon(source: Source, i: int, law: _Law, k: int, gear: float) -> list[AnyForce]:
    if k in source.lengths:
        return [_along_coordinate(source, i, law, source.lengths[k], gear)]
    ends = straight_ends(source, k)
    if not ends:
        source.lost("actuator", i, "pulls at a tendon with a path of its own; it is left out")
        return []
    # A positive force lengthens a tendon, a positive tension shortens it.
    a, b = (owner.at(place) for owner, place in ends)
    terms = -(gear**2) * law.by_length, 0.0, -(gear**2) * law.by_rate, -gear * law.constant
    name = source.new_name("actuator", i)
    source.efforts[i] = f"{name}.tension", -gear
    return [SpringDamper(name, a, b, *terms)]
