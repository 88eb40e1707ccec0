"""Adams, the datasets `.adm` of its solver: parts, markers, joints, motions and forces.

Joints are between a marker I and a marker J: coordinates are those of I relative to J, so that J is the first marker
here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmbd.io._imported_model import ImportedModel, Remarks
from jaxmbd.io._names import Names
from jaxmbd.io.adams.dataset import Dataset, read_bodies
from jaxmbd.io.adams.forces import read_force, read_motion
from jaxmbd.io.adams.joints import read_joint
from jaxmbd.io.adams.statements import Statement, read_statements
from jaxmbd.io.adams.units import Units, units_of
from jaxmbd.model.body.spatial import Body
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.mechanism.mechanism import AnyForce, Mechanism
from jaxmbd.printing import count_of

READ = ("ACCGRAV", "BUSHING", "END", "GFORCE", "JOINT", "JPRIM", "MARKER", "MOTION", "PART", "SFORCE", "SPRINGDAMPER",
        "UNITS", "VFORCE", "VTORQUE")  # fmt: skip
# What directs the solver, is looked at, or holds data for others, which are remarked where they refer to it.
SILENT = ("ARRAY", "CURVE", "DEBUG", "EQUILIBRIUM", "GRAPHICS", "IC", "INTEGRATOR", "KINEMATICS", "LIST", "LSOLVER",
          "MATERIAL", "MATRIX", "OUTPUT", "PINPUT", "POUTPUT", "PREFERENCES", "REQUEST", "RESULTS", "SPLINE", "STRING",
          "SURFACE", "VARIABLE")  # fmt: skip
LOST = ("BEAM", "CONTACT", "COUPLER", "CVCV", "DIFF", "FIELD", "FLEX_BODY", "FRICTION", "GCON", "GEAR", "GSE", "LSE",
        "MFORCE", "NFORCE", "POINT_MASS", "PTCV", "SENSOR", "TFSISO", "UCON")  # fmt: skip
_FORCES = ("BUSHING", "GFORCE", "SFORCE", "SPRINGDAMPER", "VFORCE", "VTORQUE")


def read_adams(path: Path) -> ImportedModel:
    """The mechanism of a dataset of Adams, in SI units."""
    statements = read_statements(path, (*READ, *SILENT, *LOST))
    remarks = Remarks(path)
    given = [units_of(statement) for statement in statements if statement.keyword == "UNITS"]
    if not given:
        remarks.changed("UNITS", "are not in the file: it is read in newtons, kilograms, metres and seconds")
    dataset = Dataset(path, remarks, Names(remarks), given[-1] if given else Units())
    bodies, speeds = read_bodies(dataset, statements)
    _remark_on_others(dataset, statements)
    return _assembled(dataset, statements, bodies, speeds)


def _remark_on_others(dataset: Dataset, statements: list[Statement]) -> None:
    """Remark statements that are not read."""
    silent: dict[str, list[Statement]] = {}
    for statement in statements:
        if statement.keyword in SILENT:
            silent.setdefault(statement.keyword, []).append(statement)
        elif statement.keyword in LOST:
            dataset.lost(statement, "has no counterpart and is left out")
        elif statement.keyword not in READ:
            dataset.lost(statement, "is no statement that is known; it is left out")
    for keyword, found in silent.items():
        dataset.remarks.changed(keyword, f"is left out ({count_of(len(found), 'statement')})", found[0].line)


def _assembled(
    dataset: Dataset, statements: Sequence[Statement], bodies: Sequence[Body], speeds: Mapping[str, float]
) -> ImportedModel:
    """The mechanism of a dataset whose parts and markers have been read."""
    for statement in statements:
        if statement.keyword in ("JOINT", "JPRIM"):
            read_joint(dataset, statement)
    forces: list[AnyForce] = []
    drivers: list[Driver] = []
    for statement in statements:
        if statement.keyword == "ACCGRAV":
            forces += _gravity(dataset, statement)
        elif statement.keyword in _FORCES:
            forces += read_force(dataset, statement)
        elif statement.keyword == "MOTION":
            drivers += read_motion(dataset, statement)
    joints = [joint for joint, *_ in dataset.joints.values()]
    coordinates = "joint" if any(body.lacks_inertia for body in bodies) else "absolute"
    mechanism = Mechanism(bodies, joints, forces, drivers, floating=True, coordinates=coordinates)
    return ImportedModel(mechanism, {}, speeds, dataset.remarks.in_order)


def _gravity(dataset: Dataset, statement: Statement) -> list[Gravity]:
    keys = ("IGRAV", "JGRAV", "KGRAV")
    dataset.known(statement, *keys)
    unit = dataset.units.length / dataset.units.time**2
    field = unit * np.array([statement.numeral(key, 0.0) for key in keys])
    return [Gravity(field, dataset.names.made("gravity"))] if field.any() else []
