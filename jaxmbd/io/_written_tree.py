"""What can be written as a tree of bodies, in the formats of other programs."""

from jaxmbd.errors import MechanismError
from jaxmbd.model.body.flexible import flexible
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism


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
