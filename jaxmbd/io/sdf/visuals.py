"""What the links of an SDF model look like: `<visual>`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._looks import Looks, hex_colour
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.sdf.frames import Frames
from jaxmbd.io.sdf.values import Values
from jaxmbd.space.shape import Shape

_SIZES = {
    "box": ("size",),
    "cylinder": ("radius", "length"),
    "sphere": ("radius",),
    "capsule": ("radius", "length"),
    "ellipsoid": ("radii",),
}
_UNBOUNDED = ("plane", "empty", "heightmap")  # a page has a floor of its own


def looks_of(values: Values, frames: Frames, owners: Mapping[str, Owner], within: Path) -> Looks:
    """The shapes of all links."""
    looks = Looks(values.path, within, values.remarks)
    for name, frame in frames.of("link"):
        for visual in frame.element.all("visual"):
            make = lambda link=name, visual=visual: _shape(values, frames, looks, link, visual)  # noqa: E731
            looks.add(f"link {frames.shown(name)!r}", visual.line, owners[name], make)
    return looks


def _shape(values: Values, frames: Frames, looks: Looks, link: str, visual: Element) -> tuple[Shape, Placement] | None:
    geometry = visual.first("geometry")
    if geometry is None or not geometry.children:
        raise values.error(visual, "it has no <geometry>, or an empty one.")
    own, opacity = geometry.children[0], 1.0 - values.number(visual, "transparency", 0.0)
    colour, alpha = _colour(values, visual)
    opacity *= alpha
    if own.tag in _UNBOUNDED or opacity <= 0:
        return None
    if own.tag == "mesh":
        x, y, z = values.numbers(own.first("scale"), (1.0, 1.0, 1.0)).tolist()
        if not x * y * z:
            raise values.error(own, "its scale must not be zero.")
        shape = looks.mesh(values.text(own, "uri"), (x, y, z))
    elif own.tag in _SIZES:
        count = 3 if own.tag in ("box", "ellipsoid") else 1
        size = np.concatenate([values.numbers(own.first(key), (0.0,) * count) for key in _SIZES[own.tag]])
        shape = Shape(own.tag, tuple((2 * size if own.tag == "ellipsoid" else size).tolist()))
    else:
        raise MechanismError(f"<{own.tag}> is not shown; shapes are {', '.join(_SIZES)} and mesh")
    return shape.coloured(colour, min(opacity, 1.0)), _placement(values, frames, link, visual)


def _placement(values: Values, frames: Frames, link: str, visual: Element) -> Placement:
    """The placement in the frame of the link, to which a pose may be relative or not."""
    pose = visual.first("pose")
    base = "" if pose is None else pose.attributes.get("relative_to", "")
    own = values.pose(pose)
    if not base:
        return own
    other = frames.named(frames.by_name[link].scope, base, visual)
    return frames.pose(link).inverse() @ frames.pose(other) @ own


def _colour(values: Values, visual: Element) -> tuple[str | None, float]:
    """The diffuse colour, or the ambient one, None if there is neither; and its opacity."""
    material = visual.first("material")
    for tag in ("diffuse", "ambient"):
        given = None if material is None else material.first(tag)
        if given is not None:
            words = given.text.split()
            rgba = values.numbers(given, (0.0,) * (3 if len(words) == 3 else 4))
            return hex_colour(rgba), float(rgba[3]) if len(rgba) == 4 else 1.0
    return None, 1.0
