"""A compiled MJCF model on its way to a mechanism: MuJoCo's numbers, and what has been made of them so far."""

import importlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxmbd.errors import needs
from jaxmbd.io._imported_model import Remarks, file_error
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement, from_quaternion
from jaxmbd.model.body.spatial import Marker, ground

_LISTS = {
    "body": "bodies",
    "joint": "joints",
    "geom": "geoms",
    "site": "sites",
    "equality": "equalities",
    "tendon": "tendons",
    "actuator": "actuators",
    "sensor": "sensors",
    "key": "keys",
}


@dataclass
class Source:
    """`model`, `data`: MuJoCo's; `lines`: by kind and index; `qpos`, `qvel`, `ctrl`: of the start.

    Filled by those that make parts: `owners`, the body of each of MuJoCo's bodies; `coordinates`, the name of the
    coordinate of each hinge and slide; `lengths`, that of each fixed tendon; `joint_names` and `markers` of each joint;
    `efforts`, the channel of an actuator's force and the force per unit of it.
    """

    mujoco: Any
    model: Any
    data: Any
    lines: dict[tuple[str, int], int]
    names: Names
    remarks: Remarks
    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray
    owners: dict[int, Owner] = field(default_factory=lambda: {0: Owner(ground)})
    coordinates: dict[int, str] = field(default_factory=dict)
    lengths: dict[int, str] = field(default_factory=dict)
    joint_names: dict[int, str] = field(default_factory=dict)
    efforts: dict[int, tuple[str, float]] = field(default_factory=dict)
    markers: dict[int, tuple[Marker, Marker]] = field(default_factory=dict)

    def given(self, kind: str, index: int) -> str:
        """The name in the file, empty if there is none."""
        return self.mujoco.mj_id2name(self.model, getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), index) or ""

    def line(self, kind: str, index: int) -> int | None:
        """The line of the file."""
        return self.lines.get((kind, index))

    def part(self, kind: str, index: int) -> str:
        """An element as remarks name it."""
        return f"{kind} {self.given(kind, index)!r}" if self.given(kind, index) else f"{kind} {index}"

    def lost(self, kind: str, index: int, text: str) -> None:
        """Remark what the mechanism lacks of an element."""
        self.remarks.lost(self.part(kind, index), text, self.line(kind, index))

    def changed(self, kind: str, index: int, text: str) -> None:
        """Remark what the mechanism has of an element in another form."""
        self.remarks.changed(self.part(kind, index), text, self.line(kind, index))

    def new_name(self, kind: str, index: int, owner: str = "") -> str:
        """A name for the part that an element becomes; after its `owner` where the file gives none."""
        given = self.given(kind, index)
        return self.names.new(kind, given, self.line(kind, index)) if given else self.names.made(kind, owner)

    def is_disabled(self, flag: str) -> bool:
        """True if the file switches a part of the computation off: `"EQUALITY"`, `"SPRING"`, …"""
        return bool(self.model.opt.disableflags & int(getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{flag}")))

    def site(self, index: int) -> tuple[Owner, Placement]:
        """The owner of a site, and its placement on it."""
        placement = from_quaternion(self.model.site_pos[index], self.model.site_quat[index])
        return self.owners[int(self.model.site_bodyid[index])], placement

    def joints_of(self, body: int) -> Iterator[int]:
        """The indices of the joints of a body, in the order in which they move it."""
        first = int(self.model.body_jntadr[body])
        return iter(range(first, first + int(self.model.body_jntnum[body])))

    def extra(self, name: str, index: int) -> bool:
        """True if an array that only newer versions of MuJoCo have is not zero for an element."""
        values = getattr(self.model, name, None)
        return values is not None and bool(np.any(values[index]))


def compiled(path: Path, keyframe: str | None) -> Source:
    """A model that MuJoCo has compiled, at its start.

    **Raises:** `MechanismError` if the package `mujoco` is missing, or with MuJoCo's message if the file is wrong.
    """
    needs("MJCF, which MuJoCo's own compiler reads,", "mujoco", "mjcf")
    mujoco: Any = importlib.import_module("mujoco")  # an extra, without types
    remarks = Remarks(path)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spec = mujoco.MjSpec.from_file(str(path))
            spec.memory = 2**24  # no contact and no constraint is computed: the file may ask for any amount
            model = spec.compile()
    except (ValueError, RuntimeError, OSError) as error:
        raise file_error(path, f"MuJoCo: {' '.join(str(error).split())}") from None
    for warning in caught:
        remarks.changed("MuJoCo", f"warns: {' '.join(str(warning.message).split())}")
    data = mujoco.MjData(model)
    number = _keyframe(path, mujoco, model, keyframe)
    if number is not None:
        mujoco.mj_resetDataKeyframe(model, data, number)
    mujoco.mj_kinematics(model, data)
    start = data.qpos.copy(), data.qvel.copy(), data.ctrl.copy()
    return Source(mujoco, model, data, _lines(spec), Names(remarks), remarks, *start)


def _keyframe(path: Path, mujoco: Any, model: Any, name: str | None) -> int | None:
    names = [mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_KEY, i) or str(i) for i in range(model.nkey)]
    if name is None:
        return None
    if name not in names:
        raise file_error(path, f"there is no keyframe {name!r}; there are: {', '.join(names) or 'none'}.")
    return names.index(name)


def _lines(spec: object) -> dict[tuple[str, int], int]:
    """The line of each element by kind and index, from MuJoCo's notes ("line 12")."""
    lines: dict[tuple[str, int], int] = {}
    for kind, listed in _LISTS.items():
        elements: Sequence[Any] = getattr(spec, listed)
        for element in elements:
            _, _, number = str(element.info).rpartition("line ")
            if number.isdecimal():
                lines[kind, int(element.id)] = int(number)
    return lines
