"""MJCF, the models of MuJoCo: compiled by MuJoCo itself, then translated element by element."""

from pathlib import Path

import numpy as np

from jaxmbd.io._imported_model import ImportedModel
from jaxmbd.io._looks import Looks
from jaxmbd.io._xml import Element
from jaxmbd.io.mjcf.actuators import actuators
from jaxmbd.io.mjcf.bodies import bodies_and_joints, start
from jaxmbd.io.mjcf.files import check_files
from jaxmbd.io.mjcf.forces import passive_forces
from jaxmbd.io.mjcf.loops import constraints
from jaxmbd.io.mjcf.sensors import translated
from jaxmbd.io.mjcf.source import Source, compiled
from jaxmbd.io.mjcf.tendons import fixed_tendons
from jaxmbd.io.mjcf.visuals import looks_of
from jaxmbd.model.mechanism.mechanism import Mechanism

_LISTED = 4  # geoms that a remark names


def read_mjcf(path: Path, root: Element, keyframe: str | None, within: Path) -> ImportedModel:
    """The mechanism of an MJCF file, in joint coordinates; `root` is its root element."""
    check_files(path, root, within)
    source = compiled(path, keyframe)
    if source.model.nbody == 1:
        raise source.remarks.error("", "it has no body besides the world.")
    bodies, joints = bodies_and_joints(source)
    tendons = fixed_tendons(source)
    closures, drivers = constraints(source)
    forces = [*passive_forces(source), *actuators(source)]
    _remark_on_the_rest(source)
    looks = looks_of(source, Looks(path, within, source.remarks))
    parts = looks.dressed(bodies), [*joints, *tendons, *closures], forces, drivers, translated(source)
    mechanism = Mechanism(*parts, floating=True, coordinates="joint", scenery=looks.scenery)
    return ImportedModel(mechanism, *start(source), source.remarks.in_order)


def _remark_on_the_rest(source: Source) -> None:
    """Remark what the whole model has and the mechanism has not."""
    m = source.model
    touching = np.flatnonzero((m.geom_contype | m.geom_conaffinity) != 0).tolist()
    if len(touching) > 1 and not (source.is_disabled("CONTACT") or source.is_disabled("CONSTRAINT")):
        names = [source.part("geom", i) for i in touching[:_LISTED]]
        more = f" and {len(touching) - _LISTED} more" if len(touching) > _LISTED else ""
        source.remarks.lost("contacts", f"of {', '.join(names)}{more}: bodies pass through one another here")
    for i in range(m.npair):
        source.remarks.lost(f"contact pair {i}", "is left out")
    for i in range(m.nkey):
        source.changed(
            "key", i, "is one of the states to start from: read(..., keyframe=...), for the command --keyframe"
        )
    for i in np.flatnonzero(m.body_gravcomp).tolist():
        source.lost("body", i, "has gravcomp; its weight is not compensated here")
    for i in np.flatnonzero(m.body_mocapid >= 0).tolist():
        source.lost("body", i, "is moved from outside (mocap); it stands still here")
    for what, count in (("flex", m.nflex), ("plugin", m.nplugin)):
        if count:
            source.remarks.lost(f"{count} x {what}", "is left out")
    if m.opt.density or m.opt.viscosity or m.opt.wind.any():
        source.remarks.lost("option", "has a fluid (density, viscosity, wind), whose forces are left out")
