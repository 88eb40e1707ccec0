"""The frames of an SDF file: links, joints, frames and models, each with a pose relative to another frame.

A name is looked up in the model in which it is written; `"inner::tip"` is one of a model within it. Here a frame has
the name of the path to it, `"outer::inner::tip"`, and the world the empty one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from jaxmbd.errors import unknown
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.sdf.values import Values

WORLD = ""


@dataclass(frozen=True)
class Frame:
    """`element`; `scope`: the frame of the model that it is written in; `base`: the name of the frame that its pose is
    relative to, and `carrier` of the one that it is fixed to, both as written; `is_static`: it belongs to a model that
    does not move."""

    element: Element
    scope: str
    base: str
    carrier: str
    is_static: bool = False


class Frames:
    """All frames below one element."""

    def __init__(self, values: Values, root: Element) -> None:
        self.values = values
        self.by_name: dict[str, Frame] = {}
        self._poses: dict[str, Placement] = {WORLD: Placement()}
        for tag in ("model", "frame", "joint"):
            self._add_all(root, WORLD, tag, is_static=False)

    def of(self, tag: str) -> Iterator[tuple[str, Frame]]:
        """The frames that elements of one tag have, with their names."""
        return ((name, frame) for name, frame in self.by_name.items() if frame.element.tag == tag)

    def shown(self, name: str) -> str:
        """The name for parts and remarks: without the model's where the file has one model."""
        return name.removeprefix(self._only_model)

    @cached_property
    def _only_model(self) -> str:
        outermost = [own for own, frame in self.of("model") if frame.scope == WORLD]
        return f"{outermost[0]}::" if len(outermost) == 1 else ""

    def _add_all(self, parent: Element, scope: str, tag: str, is_static: bool) -> None:
        for element in parent.all(tag):
            own = self.values.attribute(element, "name")
            name = f"{scope}::{own}" if scope else own
            if name in self.by_name:
                line = self.by_name[name].element.line
                raise self.values.error(element, f"there is another element of this name in line {line}.")
            static = is_static or (tag == "model" and self.values.flag(element, "static"))
            self.by_name[name] = self._frame(element, scope, static)
            if tag == "model":
                if element.attributes.get("placement_frame"):
                    raise self.values.error(element, "placement_frame is not read; give the pose of the model itself.")
                for inner in ("link", "frame", "joint", "model"):
                    self._add_all(element, name, inner, static)

    def _frame(self, element: Element, scope: str, is_static: bool) -> Frame:
        carrier = {"frame": element.attributes.get("attached_to", ""), "link": "", "model": ""}.get(element.tag)
        if carrier is None:
            carrier = self.values.text(element, "child")
        pose = element.first("pose")
        given = {} if pose is None else pose.attributes
        base = given.get("relative_to") or given.get("frame") or (carrier if element.tag != "model" else "")
        return Frame(element, scope, base, carrier, is_static)

    def named(self, scope: str, name: str, element: Element) -> str:
        """The full name of what `name` means in a model; empty for the model's own frame at the top, and the world."""
        if name in ("", "__model__"):
            return scope
        if name == "world":
            return WORLD
        full = f"{scope}::{name}" if scope else name
        if full not in self.by_name:
            start = f"{scope}::" if scope else ""
            known = [other.removeprefix(start) for other in self.by_name if other.startswith(start)]
            raise self.values.error(element, str(unknown("frame", name, known)))
        return full

    def pose(self, name: str) -> Placement:
        """The pose of a frame in the world, where all joints are at zero."""
        chain: list[str] = []
        while name not in self._poses:
            frame = self.by_name[name]
            if name in chain:
                raise self.values.error(frame.element, "its pose is relative to itself, by way of others.")
            chain.append(name)
            name = self.named(frame.scope, frame.base, frame.element)
        for own in reversed(chain):
            relative = self.values.pose(self.by_name[own].element.first("pose"))
            self._poses[own] = self._poses[name] @ relative
            name = own
        return self._poses[name]

    def link(self, scope: str, name: str, element: Element) -> str:
        """The link that carries a frame; empty for the world."""
        full, seen = self.named(scope, name, element), set()
        while full != WORLD and self.by_name[full].element.tag != "link":
            if full in seen:
                raise self.values.error(element, f"the frame {name!r} is attached to itself, by way of others.")
            seen.add(full)
            frame = self.by_name[full]
            full = (
                self._canonical(full)
                if frame.element.tag == "model"
                else self.named(frame.scope, frame.carrier, frame.element)
            )
        return full

    def _canonical(self, model: str) -> str:
        """The link to which the frame of a model is fixed: the one that it names, or its first."""
        element = self.by_name[model].element
        given = element.attributes.get("canonical_link")
        if given:
            return self.named(model, given, element)
        links = [name for name, _ in self.of("link") if name.startswith(f"{model}::")]
        if not links:
            raise self.values.error(element, "it has no link.")
        return links[0]
