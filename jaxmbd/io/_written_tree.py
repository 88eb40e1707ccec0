"""What can be written as a tree of bodies, in the formats of other programs."""

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.model.body.flexible import flexible
from jaxmbd.model.body.spatial import Body
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.printing import count_of


def check_tree_in_space(caller: str, mechanism: Mechanism, becomes: str) -> None:
    """Raise unless a mechanism is in space and has a spanning tree; `becomes`: what the format makes of the tree."""
    check_mechanism(mechanism)
    if mechanism.space.dim != 3 or mechanism.coordinates != "joint":
        raise MechanismError(
            f"{caller} takes a mechanism in space, in joint coordinates, whose tree becomes {becomes}; this one is in "
            f"{mechanism.space.dim} dimensions, in {mechanism.coordinates} coordinates: take "
            "mechanism.with_coordinates('joint')."
        )
    for body in flexible(mechanism.bodies).values():
        raise MechanismError(f"{caller}: {body.name!r} is a flexible body, and the file can hold rigid ones alone.")


def remark_on_shapes(mechanism: Mechanism, remarks: Remarks) -> None:
    """Remark that the file lacks what bodies and the ground look like."""
    shapes = [shape for body in mechanism.bodies if isinstance(body, Body) for shape in body.shape]
    count = len(shapes) + len(mechanism.scenery)
    if count:
        text = "of bodies and the ground are left out: the file has no visual geometry"
        remarks.changed(count_of(count, "shape"), text)
