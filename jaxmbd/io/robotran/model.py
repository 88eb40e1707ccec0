"""Robotran, the `.mbs` files of MBsysPad: a tree of bodies with joints of one coordinate, and cuts that close loops.

Laws of forces, of links and of driven joints are code of the user's project in Robotran, which is not read.
"""

from pathlib import Path

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import ImportedModel, Remarks
from jaxmbd.io._xml import Element
from jaxmbd.io.robotran.bodies import Bodies
from jaxmbd.io.robotran.values import Values
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.joint.shared import FixedConstraint, PointConstraint, Rod
from jaxmbd.model.mechanism.mechanism import Joint, Mechanism

ROOT = "mbsDescR7"
_SHOWN = ("mbsname", "mbsyspad_version", "x3D", "graphics", "base", "bodytree", "cuts", "links")  # or read below
_CODE = {"user_models": "are numbers for the user's code of the project, which is not read"}
_CODE["user_variables"] = _CODE["user_models"]
_OF_CUT = ("name", "endpoint1", "endpoint2", "ignore", "length", "graphics")


def read_robotran(path: Path, root: Element) -> ImportedModel:
    """The mechanism of a Robotran file, in joint coordinates; `root` is its root element."""
    remarks = Remarks(path)
    values = Values(path, remarks)
    base, tree = root.first("base"), root.first("bodytree")
    if base is None or tree is None:
        raise values.error(root, "it has no <base> or no <bodytree>.")
    made = Bodies(values)
    made.read(base, tree)
    field = values.vector(base.first("gravity"))
    forces = [Gravity(field, values.names.made("gravity"))] if field.any() else []
    cuts = [cut for element in root.all("cuts") for child in element.children for cut in _cut(values, child)]
    for link in (child for element in root.all("links") for child in element.children):
        if link.tag not in ("link", "link3D"):
            values.remarks.lost("links", f"has <{link.tag}>, which is unknown and left out", link.line)
            continue
        for tag in ("endpoint1", "endpoint2"):
            values.marker(link, tag)  # checked, though its law is not known
        values.lost(link, "has a law in the user's code of the project, which is not read; add a SpringDamper")
    for tag, text in _CODE.items():
        for element in root.all(tag):
            if element.children:
                remarks.lost(tag, text, element.line)
    values.remark_on_others(root, (*_SHOWN, *_CODE))
    if root.first("x3D") or any(e.tag == "graphics" for e in root.descendants()):
        remarks.changed("graphics", "of the file are left out")
    mechanism = Mechanism(
        made.bodies, [*made.joints, *cuts], forces, made.drivers, made.sensors, coordinates="joint",
    )  # fmt: skip
    return ImportedModel(mechanism, made.guess, made.speeds, remarks.in_order)


def _cut(values: Values, element: Element) -> list[Joint]:
    """A cut, by the rows that it has in Robotran; those that `<ignore>` names are left away."""
    if element.tag not in ("ball", "rod", "solid"):
        if element.tag != "graphics":
            values.remarks.lost("cuts", f"has <{element.tag}>, which is unknown and left out", element.line)
        return []
    values.remark_on_others(element, _OF_CUT)
    a, b = values.marker(element, "endpoint1"), values.marker(element, "endpoint2")
    ignore = element.first("ignore")
    without = [axis for axis in "xyz" if ignore is not None and ignore.first(axis) is not None]
    name = values.names.new("cut", values.text(element, "name"), element.line)
    try:
        if element.tag == "rod":
            return [Rod(name, a, b, values.number(element, "length"))]
        if element.tag == "ball":
            if without:
                text = f"has no rows along {', '.join(without)}, which are axes of the first body here"
                values.remarks.changed(values.part(element), text, element.line)
            return [PointConstraint(name, a, b, without)]
        if without:
            raise MechanismError(f"<ignore> of a solid cut has no counterpart, got {without}; take a ball cut.")
        return [FixedConstraint(name, a, b)]
    except MechanismError as error:
        raise values.error(element, str(error)) from None
