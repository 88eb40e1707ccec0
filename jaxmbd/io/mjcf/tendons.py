"""Tendons of MJCF: fixed ones, sums of joint coordinates, and straight lines between two sites."""

from collections.abc import Sequence

from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io.mjcf.source import Source
from jaxmbd.model.force.joint_forces import JointFriction, JointSpringDamper, JointStop
from jaxmbd.model.force.marker_forces import SpringDamper
from jaxmbd.model.joint.shared import Tendon
from jaxmbd.model.mechanism.mechanism import AnyForce


def fixed_tendons(source: Source) -> list[Tendon]:
    """The tendons that are sums of coordinates of hinges and slides; their lengths are those of MuJoCo."""
    m, wraps = source.model, source.mujoco.mjtWrap
    tendons = []
    for k in range(m.ntendon):
        path = _path(source, k)
        if path and all(kind == wraps.mjWRAP_JOINT and j in source.coordinates for kind, j, _ in path):
            name = source.new_name("tendon", k)
            names, ratios = [source.coordinates[j] for _, j, _ in path], [ratio for _, _, ratio in path]
            tendons.append(Tendon(name, names, ratios))
            source.lengths[k] = f"{name}.length"
    return tendons


def straight_ends(source: Source, k: int) -> list[tuple[Owner, Placement]]:
    """The ends of a tendon that is a straight line between sites of two bodies; empty for others."""
    path = _path(source, k)
    if len(path) != 2 or any(kind != source.mujoco.mjtWrap.mjWRAP_SITE for kind, _, _ in path):
        return []
    ends = [source.site(site) for _, site, _ in path]
    return [] if ends[0][0] == ends[1][0] else ends


def _path(source: Source, k: int) -> list[tuple[int, int, float]]:
    """What a tendon runs over: kinds, indices and parameters (for a joint its coefficient)."""
    m, first = source.model, int(source.model.tendon_adr[k])
    which = slice(first, first + int(m.tendon_num[k]))
    return list(zip(*(x[which].tolist() for x in (m.wrap_type, m.wrap_objid, m.wrap_prm)), strict=True))


def tendon_forces(source: Source, k: int) -> Sequence[AnyForce]:
    """The springs, damping, friction and limits of a tendon."""
    m = source.model
    stiffness = 0.0 if source.is_disabled("SPRING") else float(m.tendon_stiffness[k])
    damping = 0.0 if source.is_disabled("DAMPER") else float(m.tendon_damping[k])
    friction = 0.0 if source.is_disabled("FRICTIONLOSS") else float(m.tendon_frictionloss[k])
    if source.extra("tendon_armature", k):
        source.lost("tendon", k, "has armature, which is left out")
    if source.extra("tendon_stiffnesspoly", k) or source.extra("tendon_dampingpoly", k):
        source.lost("tendon", k, "has stiffness or damping of higher order; only the linear part is kept")
    if k in source.lengths:
        forces = _spring(source, k, stiffness, damping) + _friction(source, k, friction)
        return forces + _limits(source, k)
    if m.tendon_limited[k] and not source.is_disabled("LIMIT"):
        source.lost("tendon", k, f"has the range {m.tendon_range[k].tolist()}, which nothing enforces")
    if friction:
        source.lost("tendon", k, "has frictionloss, which is left out")
    return _straight_spring(source, k, stiffness, damping) if stiffness or damping else []


def _spring(source: Source, k: int, stiffness: float, damping: float) -> list[AnyForce]:
    """`−k (l − l₀) − d l̇`; between two lengths the spring is slack."""
    length, (low, high) = source.lengths[k], source.model.tendon_lengthspring[k].tolist()
    owner, forces = length.partition(".")[0], []
    is_slack = bool(stiffness) and low != high
    if is_slack:
        forces.append(JointStop(source.names.made("spring", owner), length, low, high, stiffness, exponent=1.0))
    if damping or (stiffness and not is_slack):
        own = 0.0 if is_slack else stiffness
        forces.append(JointSpringDamper(source.names.made("spring", owner), length, own, low, damping))
    return forces


def _friction(source: Source, k: int, friction: float) -> list[JointFriction]:
    if not friction:
        return []
    length = source.lengths[k]
    force = JointFriction(source.names.made("friction", length.partition(".")[0]), length, coulomb=friction)
    source.lost("tendon", k, f"has frictionloss: dry friction, whose sign is smoothed over {float(force.width):g} m/s")
    return [force]


def _limits(source: Source, k: int) -> list[JointStop]:
    """Stops as stiff as MuJoCo's limit at the reference position.

    Its stiffness per mass, deep in the limit, is `1 / (T ζ)²` [1/s²] for `solref = (T, ζ)`, or minus the first of two
    negative numbers; the mass is the inverse of `tendon_invweight0` (MuJoCo: *Modeling*, solver parameters).
    """
    m = source.model
    if not m.tendon_limited[k] or source.is_disabled("LIMIT") or source.is_disabled("CONSTRAINT"):
        return []
    length, (low, high) = source.lengths[k], m.tendon_range[k].tolist()
    (time, ratio), weight = m.tendon_solref_lim[k].tolist(), float(m.tendon_invweight0[k])
    per_mass = 1 / (time * ratio) ** 2 if time > 0 and ratio > 0 else -time
    if not (weight > 0 and per_mass > 0):
        source.lost("tendon", k, f"has the range {[low, high]}, which nothing enforces")
        return []
    stop = JointStop(
        source.names.made("stop", length.partition(".")[0]), length, low, high, per_mass / weight, exponent=1.0
    )
    text = f"has the range {[low, high]}: stops of {float(stop.stiffness):.3g} N/m, without the damping of MuJoCo's"
    source.lost("tendon", k, text)
    return [stop]


def _straight_spring(source: Source, k: int, stiffness: float, damping: float) -> list[SpringDamper]:
    lengths, ends = source.model.tendon_lengthspring[k], straight_ends(source, k)
    if not ends:
        source.lost("tendon", k, "is no straight line between sites of two bodies; its spring and damping are left out")
        return []
    if stiffness and lengths[0] != lengths[1]:
        source.lost("tendon", k, f"is slack between the lengths {lengths.tolist()}; it is left out")
        return []
    a, b = (owner.at(place) for owner, place in ends)
    return [SpringDamper(source.new_name("tendon", k), a, b, stiffness, float(lengths[0]), damping)]
