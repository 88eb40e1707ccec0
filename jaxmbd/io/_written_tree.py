"""What can be written as a tree of bodies, in the formats of other programs."""

from jaxmbd.embedding import embedded, embedded_state
from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.model.body.flexible import flexible
from jaxmbd.model.body.spatial import Body
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.printing import count_of
from jaxmbd.state.state import State, check_state


def tree_in_space(
    caller: str, mechanism: Mechanism, becomes: str, remarks: Remarks, state: State | None = None
) -> tuple[Mechanism, State | None]:
    """A mechanism with a spanning tree, and its state, in space: one of the plane as it is in the plane of x and y.

    `becomes`: what the format makes of the tree. What has no counterpart in space is remarked as lost.

    **Raises:** `MechanismError` if there is no tree, or a body is flexible.
    """
    check_mechanism(mechanism)
    if mechanism.coordinates != "joint":
        raise MechanismError(
            f"{caller} takes a mechanism in joint coordinates, whose tree becomes {becomes}; this one is in "
            f"{mechanism.coordinates} coordinates: take mechanism.with_coordinates('joint')."
        )
    for body in flexible(mechanism.bodies).values():
        raise MechanismError(f"{caller}: {body.name!r} is a flexible body, and the file can hold rigid ones alone.")
    if state is not None:
        check_state(mechanism, state)
    if mechanism.space.dim == 3:
        return mechanism, state
    remarks.changed("the plane", "of the mechanism is that of x and y")
    spatial = embedded(mechanism, lambda part, why: remarks.lost(f"{type(part).__name__} {part.name!r}", why))
    return spatial, None if state is None else embedded_state(mechanism, spatial, state)


def remark_on_shapes(mechanism: Mechanism, remarks: Remarks) -> None:
    """Remark that the file lacks what bodies and the ground look like."""
    shapes = [shape for body in mechanism.bodies if isinstance(body, Body) for shape in body.shape]
    count = len(shapes) + len(mechanism.scenery)
    if count:
        text = "of bodies and the ground are left out: the file has no visual geometry"
        remarks.changed(count_of(count, "shape"), text)
