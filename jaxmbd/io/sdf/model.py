"""SDF, the models and worlds of Gazebo: links and joints, whose loops need no element of their own."""

from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import ImportedModel, Remarks
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.sdf.frames import WORLD, Frame, Frames
from jaxmbd.io.sdf.joints import Joints
from jaxmbd.io.sdf.values import Values
from jaxmbd.io.sdf.visuals import looks_of
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.mechanism.mechanism import Mechanism

_TENSOR = ("xx", "xy", "xz", "yy", "yz", "zz")
_GRAVITY = (0.0, 0.0, -9.8)  # [m/s²] where a file gives none (SDF, <world>)
# Elements that something is made of, and those that only show or direct Gazebo.
_OF_MODEL = ("link", "joint", "frame", "model", "pose", "static", "self_collide", "allow_auto_disable")
_OF_LINK = ("inertial", "pose", "visual", "collision", "light", "self_collide", "must_be_base_link")
_OF_WORLD = ("model", "frame", "joint", "gravity", "light", "scene", "gui", "physics", "magnetic_field", "atmosphere",
             "spherical_coordinates", "audio")  # fmt: skip
_NO_EFFECT = {"enable_wind": "false", "kinematic": "false", "gravity": "true"}  # of links, where they are left out


def read_sdf(path: Path, root: Element, within: Path) -> ImportedModel:
    """The mechanism of an SDF file, in joint coordinates; `root` is its root element, `within` the folder of meshes."""
    remarks = Remarks(path)
    values = Values(path, remarks)
    worlds = root.all("world")
    if len(worlds) > 1:
        raise values.error(worlds[1], "a file may have one world.")
    base = worlds[0] if worlds else root
    frames = Frames(values, base)
    _remark_on_others(remarks, "world" if worlds else "sdf", base, _OF_WORLD)
    owners, bodies = {WORLD: Owner(ground)}, []
    for name, frame in frames.of("link"):
        owners[name] = owner = _owner(values, frames, name, frame)
        if isinstance(owner.body, Body):
            bodies.append(owner.body)
    if not bodies:
        raise values.error(base, "it has no link that can move.")
    for _, frame in frames.of("model"):
        known = (*_OF_MODEL, *(["enable_wind"] if not values.flag(frame.element, "enable_wind") else []))
        _remark_on_others(remarks, f"model {frame.element.attributes['name']!r}", frame.element, known)
    made = Joints(values, frames, owners, _version(values, root))
    made.read()
    colliding = [name for name, frame in frames.of("link") if frame.element.first("collision") is not None]
    if len(colliding) > 1:
        remarks.lost("contacts", f"of {len(colliding)} links: they pass through one another here")
    forces = [*_gravity(values, base), *made.forces]
    looks = looks_of(values, frames, owners, within)
    parts = [*looks.dressed(bodies), *made.links], made.joints, forces
    mechanism = Mechanism(*parts, floating=True, coordinates="joint", scenery=looks.scenery)
    return ImportedModel(mechanism, {}, {}, remarks.in_order)


def _version(values: Values, root: Element) -> int:
    """The number after the point of the version, 1.x."""
    given = root.attributes.get("version", "1.12")
    first, _, minor = given.partition(".")
    if first != "1" or not (minor.isascii() and minor.isdecimal() and len(minor) < 4):
        raise values.error(root, f"version must be one of 1.0 to 1.12, got {given[:40]!r}.")
    return int(minor)


def _gravity(values: Values, base: Element) -> list[Gravity]:
    element = base.first("gravity")
    if element is None:
        values.remarks.changed("gravity", f"is not in the file: here it is {-_GRAVITY[2]} m/s² along −z, SDF's default")
    field = values.numbers(element, _GRAVITY)
    return [Gravity(field, values.names.made("gravity"))] if field.any() else []


def _owner(values: Values, frames: Frames, name: str, frame: Frame) -> Owner:
    """The body of a link with its frame; the ground for a link of a static model.

    A link without `<inertial>` has 1 kg and 1 kg m² (SDF's default).
    """
    element, place = frame.element, frames.pose(name)
    if frame.is_static:
        values.remarks.changed(
            f"link {frames.shown(name)!r}", "belongs to a static model: it is the ground here", element.line
        )
        return Owner(ground, place)
    _remark_on_others(values.remarks, f"link {frames.shown(name)!r}", element, (*_OF_LINK, *_NO_EFFECT))
    for tag, default in _NO_EFFECT.items():
        child = element.first(tag)
        if child is not None and values.flag(element, tag) != (default == "true"):
            values.remarks.lost(
                f"link {frames.shown(name)!r}", f"has <{tag}> {child.text.strip()}, which is left out", child.line
            )
    inertial = element.first("inertial")
    if inertial is None:
        values.remarks.changed(
            f"link {frames.shown(name)!r}", "has no <inertial>: it has 1 kg and 1 kg m² by default", element.line
        )
    mass, tensor = values.number(inertial, "mass", 1.0), None if inertial is None else inertial.first("inertia")
    xx, xy, xz, yy, yz, zz = (values.number(tensor, f"i{ij}", float(ij[0] == ij[1])) for ij in _TENSOR)
    at = values.pose(None if inertial is None else inertial.first("pose"))
    turn = at.rotation.as_matrix()
    J = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
    if inertial is not None and inertial.first("fluid_added_mass") is not None:
        values.remarks.lost(f"link {frames.shown(name)!r}", "has <fluid_added_mass>, which is left out", inertial.line)
    try:
        body = Body(
            values.names.new("link", frames.shown(name), element.line),
            mass,
            (J + J.T) / 2,
            (place @ Placement(at.position)).pose,
        )
    except MechanismError as error:
        raise values.error(inertial or element, f"of link {frames.shown(name)!r}: {error}") from None
    return Owner(body, Placement(-at.position))


def _remark_on_others(remarks: Remarks, part: str, element: Element, known: tuple[str, ...]) -> None:
    """Remark children of an element that nothing is made of, once for each kind."""
    others: dict[str, list[Element]] = {}
    for child in element.children:
        if child.tag not in known:
            others.setdefault(child.tag, []).append(child)
    for tag, found in others.items():
        count = f"{len(found)} x " if len(found) > 1 else ""
        remarks.lost(part, f"has {count}<{tag}>, which is left out", found[0].line)
