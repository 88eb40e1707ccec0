"""Forces that another force presses, such as the losses of a gear, bound to that by its name."""

from typing import Any

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.force.force import AbstractJointForce, AbstractLoadedForce, innermost
from jaxmbd.model.mechanism.named_coordinates import CompositeCoordinate, Load


def load_on(mechanism: Any, force: AbstractJointForce) -> Load | None:
    """The load of a force; None for one that has none.

    **Raises:** `MechanismError` if the force that it names does not exist, or does not act on the coordinate.
    """
    part = innermost(force)
    if not isinstance(part, AbstractLoadedForce):
        return None
    forces = {x.name: x for x in mechanism.forces if isinstance(x, AbstractJointForce)}
    if part.load not in forces:
        raise unknown("force along a coordinate", part.load, forces)
    law = forces[part.load]
    if isinstance(innermost(law), AbstractLoadedForce):
        raise MechanismError(f"the load {part.load!r} is a {type(innermost(law)).__name__}, which has a load itself.")
    coordinate = mechanism.coordinate(law.coordinate)
    names = [x.name for x in coordinate.parts] if isinstance(coordinate, CompositeCoordinate) else []
    if part.coordinate not in names:
        raise MechanismError(
            f"the load {part.load!r} acts along {law.coordinate!r}, to which {part.coordinate!r} does not belong. Give "
            "the force along the twist of a GearMesh, or the length of a Tendon, of that coordinate."
        )
    return Load(law.name, coordinate, law, names.index(part.coordinate))
