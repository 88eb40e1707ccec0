"""An Adams dataset on its way to a mechanism: its parts and markers, and what is said of the rest."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks, file_error
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io.adams.statements import Statement
from jaxmbd.io.adams.units import Units
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.mechanism.mechanism import Joint

Side = tuple[Owner, Placement]  # a marker: its owner, and its placement in the frame of the part

_OF_PART = ("CM", "EXACT", "GROUND", "IM", "IP", "MASS", "MATERIAL", "QG", "REULER", "VM", "VX", "VY", "VZ", "WM", "WX",
            "WY", "WZ", "XG", "ZG")  # fmt: skip
_OF_MARKER = ("PART", "QP", "REULER", "XP", "ZP")


@dataclass
class Dataset:
    """A dataset on its way to a mechanism: markers by their numbers, and joints with the markers that they join."""

    path: Path
    remarks: Remarks
    names: Names
    units: Units
    markers: dict[int, Side] = field(default_factory=dict)
    floating: dict[int, str] = field(default_factory=dict)  # markers that move on a body: its name
    joints: dict[int, tuple[Joint, Side, Side]] = field(default_factory=dict)  # J and I

    def name(self, statement: Statement) -> str:
        """A name for a part: that in Adams View, or its keyword and number."""
        plain = statement.view_name.replace(".", "_") or f"{statement.keyword.lower()}_{statement.number}"
        return self.names.new(statement.keyword.lower(), plain, statement.line)

    def lost(self, statement: Statement, text: str) -> None:
        """Remark what the mechanism lacks of a statement."""
        self.remarks.lost(statement.part, text, statement.line)

    def known(self, statement: Statement, *keys: str) -> None:
        """Complete abbreviated keys, and remark those that are not understood."""
        statement.complete(*keys)
        for key in statement.values:
            if key not in keys:
                self.lost(statement, f"has {key}, which is left out")

    def side(self, statement: Statement, key: str) -> Side:
        """The marker that a key names."""
        number = statement.identifier(key)
        if number not in self.markers:
            raise statement.error(f"there is no marker {number}, which {key} names, that is fixed on a part.")
        return self.markers[number]

    def sides(self, statement: Statement) -> tuple[Side, Side] | None:
        """The markers J and I, None with a remark if both are on one part."""
        j, i = self.side(statement, "J"), self.side(statement, "I")
        if j[0].body.name == i[0].body.name:
            self.lost(statement, f"joins {j[0].body.name!r} to itself and is left out")
            return None
        return j, i


def _by_number(statements: list[Statement], keyword: str) -> dict[int, Statement]:
    found: dict[int, Statement] = {}
    for statement in statements:
        if statement.keyword == keyword:
            if statement.number in found:
                raise statement.error(f"there is another one of this number in line {found[statement.number].line}.")
            found[statement.number] = statement
    return found


def read_bodies(dataset: Dataset, statements: list[Statement]) -> tuple[list[Body], dict[str, float]]:
    """The bodies of the parts, and their speeds that are not zero."""
    parts, markers = _by_number(statements, "PART"), _by_number(statements, "MARKER")
    places: dict[int, tuple[int, Placement]] = {}
    before = 0
    for statement in statements:
        if statement.keyword == "PART":
            before = statement.number
            dataset.known(statement, *_OF_PART)
        elif statement.keyword == "MARKER":
            dataset.known(statement, *_OF_MARKER)
            part = statement.identifier("PART") if "PART" in statement.values else before  # that of the last PART
            if part not in parts:
                raise statement.error(f"there is no part {part}.")
            at = statement.placement("QP", "ZP", "XP", dataset.units.length)
            places[statement.number] = part, at
    if all("GROUND" in statement.flags for statement in parts.values()):
        raise file_error(dataset.path, "it has no PART that can move.")
    bodies: list[Body] = []
    speeds: dict[str, float] = {}
    owners: dict[int, Owner] = {}
    for number, statement in parts.items():
        if any(flag and "GROUND".startswith(flag) for flag in statement.flags):
            place = statement.placement("QG", "ZG", "XG", dataset.units.length)
            owners[number] = Owner(ground, place, place)
            continue
        owners[number], own = _part(dataset, statement, places)
        bodies.append(_body(owners[number]))
        speeds |= own
    for number, (part, at) in places.items():
        if any(flag and "FLOATING".startswith(flag) for flag in markers[number].flags):
            dataset.floating[number] = owners[part].body.name
        else:
            dataset.markers[number] = owners[part], at
    return bodies, speeds


def _body(owner: Owner) -> Body:
    assert isinstance(owner.body, Body)
    return owner.body


def _part(
    dataset: Dataset, statement: Statement, places: dict[int, tuple[int, Placement]]
) -> tuple[Owner, dict[str, float]]:
    """The body of a part, whose frame is the marker CM, and its speeds that are not zero."""
    units, start = dataset.units, statement.placement("QG", "ZG", "XG", dataset.units.length)

    def marker(key: str) -> Placement:
        number = statement.identifier(key)
        if number not in places or places[number][0] != statement.number:
            raise statement.error(f"{key} must be one of its own markers, got {number}.")
        return places[number][1]

    mass = units.mass * statement.numeral("MASS", 0.0)
    if mass and "CM" not in statement.values:
        raise statement.error("it has a mass, and no CM, the marker of its centre of mass.")
    centre = marker("CM") if "CM" in statement.values else Placement()
    J = _inertia(statement, units, mass, centre, marker("IM") if "IM" in statement.values else centre)
    name, pose = dataset.name(statement), start @ centre
    try:
        body = Body(name, mass, J, pose.pose)
    except MechanismError as error:
        raise statement.error(str(error)) from None
    v, w = (np.array([statement.numeral(f"{letter}{axis}", 0.0) for axis in "XYZ"]) for letter in "VW")
    if "VM" in statement.values:
        v = (start @ marker("VM")).rotation.apply(v)
    if "WM" in statement.values:
        w = centre.rotation.inv().apply(marker("WM").rotation.apply(w))
    named = {f"{name}.v{axis}": float(x) * units.length / units.time for axis, x in zip("xyz", v, strict=True)}
    named |= {f"{name}.omega_{axis}": float(x) / units.time for axis, x in zip("xyz", w, strict=True)}
    return Owner(body, centre.inverse(), start), {key: value for key, value in named.items() if value}


def _inertia(statement: Statement, units: Units, mass: float, centre: Placement, about: Placement) -> np.ndarray:
    """The inertia about CM in its axes. Adams gives it about IM in the axes of IM; products are the positive integrals,
    which are the entries of the matrix with the other sign."""
    if "IP" not in statement.values:
        return np.zeros((3, 3))
    numbers = statement.numbers("IP", 3, 6)
    xx, yy, zz, xy, xz, yz = numbers if len(numbers) == 6 else [*numbers, 0.0, 0.0, 0.0]
    J = units.mass * units.length**2 * np.array([[xx, -xy, -xz], [-xy, yy, -yz], [-xz, -yz, zz]])
    turn = (centre.rotation.inv() * about.rotation).as_matrix()
    d = centre.rotation.inv().apply(about.position - centre.position)
    J = turn @ J @ turn.T - mass * (d @ d * np.eye(3) - np.outer(d, d))
    return (J + J.T) / 2
