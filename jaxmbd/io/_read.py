"""`read`: a model of another program as a mechanism."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader

from jaxmbd.arrays import as_float
from jaxmbd.checks import as_path, check_finite, check_number
from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import ImportedModel, Remark, check_strict, file_error
from jaxmbd.io._xml import read_xml
from jaxmbd.model.mechanism.exact_axes import nearly_parallel, with_exact_axes

if TYPE_CHECKING:
    from jaxmbd.io.adams import model as adams
    from jaxmbd.io.asmt import model as asmt
    from jaxmbd.io.mjcf import model as mjcf
    from jaxmbd.io.robotran import model as robotran
    from jaxmbd.io.sdf import model as sdf
    from jaxmbd.io.urdf import model as urdf
else:  # a file is of one format
    adams = lazy_loader.load("jaxmbd.io.adams.model", suppress_warning=True)
    asmt = lazy_loader.load("jaxmbd.io.asmt.model", suppress_warning=True)
    mjcf = lazy_loader.load("jaxmbd.io.mjcf.model", suppress_warning=True)
    robotran = lazy_loader.load("jaxmbd.io.robotran.model", suppress_warning=True)
    sdf = lazy_loader.load("jaxmbd.io.sdf.model", suppress_warning=True)
    urdf = lazy_loader.load("jaxmbd.io.urdf.model", suppress_warning=True)

SUFFIXES = (".xml", ".urdf", ".sdf", ".world", ".asmt", ".mbs", ".adm")
_KINDS = {"mujoco": "mjcf", "robot": "urdf", "mbsDescR7": "robotran"}  # by the root elements of XML files
_TEXTS = {".asmt": "asmt", ".adm": "adams"}  # of files that are no XML


def read(
    path: str | Path,
    *,
    strict: bool = False,
    keyframe: str | None = None,
    loops: str | Path | None = None,
    floating: bool | None = None,
    length_unit: float | None = None,
    within: str | Path | None = None,
) -> ImportedModel:
    """Read a model of another program: MJCF (`.xml`), URDF (`.urdf`, `.xml`), SDF (`.sdf`, `.world`), ASMT (`.asmt`),
    Robotran (`.mbs`), Adams (`.adm`).

    **Arguments:**

    - `strict`: raise if the mechanism would lack something that the file has;
    - `keyframe`: of an MJCF file, the name of the one that the model starts from, with its controls (default: the
      reference position, all controls zero);
    - `loops`: for a URDF file, a TOML or YAML file with what closes its loops (default: `robot.loops.toml` and
      `robot.yaml` beside `robot.urdf`, if there are);
    - `floating`: of a URDF file, True if the base moves freely (default: it is the ground);
    - `length_unit` `[m]`: of an ASMT file, the length that 1 means (default: 1 m; FreeCAD writes millimetres, 0.001);
    - `within`: the folder whose files a model may include, meshes among them (default: the folder of the file).

    **Returns:** an `ImportedModel`: `mechanism`, `state`, `remarks`.

    **Raises:** `MechanismError`, with file and line, if the file is broken, refers to files outside its folder, or
    contains what is physically impossible.

        >>> model = read("robot.urdf")  # doctest: +SKIP
        >>> print(model)  # doctest: +SKIP
        >>> solution = mbd.simulate(model.mechanism, model.state, ts)  # doctest: +SKIP
    """
    path = as_path("read", path)
    root = None if path.suffix in _TEXTS else read_xml(path)
    kind = _TEXTS[path.suffix] if root is None else _KINDS.get(root.tag, root.tag)
    options: dict[str, Any] = {"keyframe": keyframe, "loops": loops, "floating": floating, "within": within}
    options["length_unit"] = length_unit
    own: dict[str, tuple[str, ...]] = {
        "mjcf": ("keyframe", "within"),
        "urdf": ("loops", "floating", "within"),
        "asmt": ("length_unit",),
        "sdf": ("within",),
        "robotran": (),
        "adams": (),
    }
    if kind not in own:
        known = "<mujoco> (MJCF), <robot> (URDF), <sdf> and <mbsDescR7> (Robotran)"
        raise file_error(path, f"the root element is <{kind}>; known are {known}.", 1)
    for name, value in options.items():
        if value is not None and name not in own[kind]:
            raise MechanismError(f"read: {name} has no meaning for {kind.upper()} files, got {value!r}.")
    if length_unit is not None:
        check_finite("read", "length_unit", as_float(length_unit))
        check_number("read", "length_unit", as_float(length_unit), "m")
    folder = path.parent if within is None else as_path("read: within", within)
    if root is None:
        model = adams.read_adams(path) if kind == "adams" else asmt.read_asmt(path, length_unit)
    elif kind == "mjcf":
        model = mjcf.read_mjcf(path, root, keyframe, folder)
    elif kind == "sdf":
        model = sdf.read_sdf(path, root, folder)
    elif kind == "robotran":
        model = robotran.read_robotran(path, root)
    else:
        chosen = None if loops is None else as_path("read: loops", loops)
        model = urdf.read_urdf(path, root, chosen, bool(floating), folder)
    model = _with_exact_axes(model)
    if strict:
        check_strict(path, model.remarks)
    return model


def _with_exact_axes(model: ImportedModel) -> ImportedModel:
    """The model with axes that the digits of the file keep from being parallel made exactly parallel, with remarks."""
    remarks = [
        Remark(f"body {axes.body}", f"has axes that are parallel to {axes.angle:.1g} rad, of {', '.join(axes.joints)}; "
               "they are made exactly parallel", lost=False)
        for axes in nearly_parallel(model.mechanism)
    ]  # fmt: skip
    if not remarks:
        return model
    return replace(model, mechanism=with_exact_axes(model.mechanism), remarks=(*model.remarks, *remarks))
