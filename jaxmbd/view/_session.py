"""`Session`: a mechanism that somebody explores. Messages come in as data, are checked, and are answered by data.

| message | what it asks for |
|---|---|
| `start` | all that a page needs at first |
| `drag` | a point `offset` of a `frame` at a `target`, or, in space, on the line `along` through it |
| `coordinate` | a `value` of the driving coordinate `name` |
| `number` | a `value` of the number `name` |
| `drive` | the coordinate `name` drives: it has the slider, and the paths and curves are those along it |
| `shapes` | shapes, paths and curves for the present numbers |
| `modes`, `found` | to search for the assembly modes at the present values of the driving coordinates; what was found |
| `mode` | the assembly mode with an `index` |
| `reset` | the numbers and the position of the start |
| `export` | the model as a file, and what Python needs to go on |

An answer has the `id` of its message. A message that makes no sense is answered by `error` with a text. Nothing in a
message is executed.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.assembly.assembly_modes import assembly_modes
from jaxmbd.analyses.dragging.following import Followed, Memory, closed_near, follow
from jaxmbd.analyses.dragging.goals import AbstractGoal, CoordinateGoal, PointGoal
from jaxmbd.analyses.dragging.linkage import Linkage, Position
from jaxmbd.analyses.dragging.path import Path, driving_coordinates, path_along, pose_distance
from jaxmbd.errors import AssemblyError, MechanismError, SolveError, shown, unknown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.result_codes import is_successful
from jaxmbd.state.state import State, rank_number, state_of
from jaxmbd.view._export import exported
from jaxmbd.view._live_scene import LiveScene
from jaxmbd.view._readings import Readings
from jaxmbd.view._sliders import sliders_of, with_number

_PARTS = 40  # of the range of a number, by which it changes at once: the linkage stays in its assembly mode
_HALVINGS = 6  # of such a part, to find how far a number can go
_MET = 1e-5  # the largest residual of goals, without units, that are met
_SAME = 1e-4  # the distance of positions of one assembly mode
_TRIES = 32  # searches for assembly modes
_LONGEST = 100  # characters of a name in a message


class Session:
    """A mechanism with its present numbers and position, and the sliders, paths and curves that are shown of it.

    **Arguments:** as for `explore`, checked here.
    """

    def __init__(
        self, mechanism: Mechanism, state: State, parameters: Iterable[str] | Mapping[str, Any] | None = None,
        show: Iterable[str] | None = None, trace: Iterable[str] | None = None, title: str = "",
    ) -> None:  # fmt: skip
        self.title, self.start_state, self._lock = title, state, threading.Lock()
        self.given, released = mechanism, without_drivers(mechanism)
        known = dict(zip(state.coordinate_names, np.asarray(state.q), strict=True))
        q = np.array([known.get(name, 0.0) for name in released.coordinate_names])
        self.linkage = Linkage(released, float(state.t), q)
        at = closed_near(self.linkage, self.linkage.at(q))
        if at is None:
            raise AssemblyError("explore: the loops of the state are open. Start from jaxmbd.assemble(mechanism, ...).")
        self.sliders = sliders_of(released, parameters, self.linkage, at)
        self._start = self.position = at
        driven = [driver.coordinate for driver in mechanism.drivers]
        self.driving = driving_coordinates(self.linkage, at, driven)
        self.active = self.driving[0] if self.driving else None
        self.scene = LiveScene(self.linkage, trace)
        self.readings = Readings(self.linkage, show, self.active)
        self.numbers: dict[str, float] = {}
        self.path = self._path()
        self._memory: Memory | None = None
        self._modes: tuple[Position, ...] = ()
        self._search: tuple[threading.Thread, list[Any], dict[str, float]] | None = None
        self._answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "start": lambda _: self._started(),
            "drag": self._dragged,
            "coordinate": self._moved,
            "number": self._changed,
            "drive": self._driven,
            "shapes": lambda _: self._shapes(),
            "modes": lambda _: self._search_modes(),
            "found": lambda _: self._found_modes(),
            "mode": self._switched,
            "reset": lambda _: self._reset(),
            "export": lambda _: self._exported(),
        }

    # --- for Python -----------------------------------------------------------------------------------------

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism with the numbers that were found, and with its drivers."""
        found = self.given
        for name, value in self.numbers.items():
            found = with_number(found, name, value)
        return found

    @property
    def state(self) -> State:
        """The present position, at rest, as a state of the mechanism without its drivers."""
        mechanism, q = self.linkage.mechanism, jnp.asarray(self.position.q)
        still = jnp.zeros(mechanism.nv, q.dtype)
        return state_of(mechanism, jnp.asarray(self.linkage.t), q, still, rank_number(-1))

    @property
    def fixed(self) -> dict[str, float]:
        """The driving coordinates and their present values, as `assemble` takes them."""
        return {self.linkage.names[k]: float(self.position.coordinates[k]) for k in self.driving}

    def answer(self, message: object) -> dict[str, Any]:
        """The answer to a message, whatever that is."""
        number = message.get("id") if isinstance(message, Mapping) else None
        about = {"id": number} if isinstance(number, int) else {}
        with self._lock:
            try:
                return {**self._answer(message), **about}
            except (MechanismError, AssemblyError, SolveError) as error:
                return {"kind": "error", "text": str(error), **about}

    def _answer(self, message: object) -> dict[str, Any]:
        if not isinstance(message, Mapping):
            raise MechanismError(f"A message must be an object, got {shown(message)}.")
        kind = message.get("kind")
        if not isinstance(kind, str) or kind not in self._answers:
            raise unknown("kind of message", kind, self._answers)
        return self._answers[kind](message)

    # --- answers --------------------------------------------------------------------------------------------

    def _started(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "remark": self._released_text(),
            "sliders": [vars(slider) for slider in self.sliders],
            "coordinates": [
                {"name": name, "unit": "rad" if is_angle else "m"}
                for name, is_angle in zip(self.linkage.names, self.linkage.is_angle, strict=True)
            ],
            **self._shapes(),
            "kind": "start",
        }

    def _dragged(self, message: Mapping[str, Any]) -> dict[str, Any]:
        dim, frame = self.linkage.mechanism.space.dim, message.get("frame")
        if not isinstance(frame, int) or isinstance(frame, bool) or not 0 <= frame < len(self.position.poses):
            raise MechanismError(
                f"frame must be a number from 0 to {len(self.position.poses) - 1}, got {shown(frame)}."
            )
        along = None
        if message.get("along") is not None:
            along = _vector(message, "along", dim)
            length = float(np.linalg.norm(along))
            if not length > 0:
                raise MechanismError("along must be a direction, got zeros.")
            along = along / length
        goal = PointGoal(frame, _vector(message, "offset", dim), _vector(message, "target", dim), along)
        found = self._followed([goal], self._memory)
        self._memory = found.memory
        return self._pose(found, float(np.linalg.norm(goal.away(self.position))))

    def _moved(self, message: Mapping[str, Any]) -> dict[str, Any]:
        number, value = self._coordinate(message), _number(message, "value")
        goals = [CoordinateGoal(k, float(self.position.coordinates[k])) for k in self.driving if k != number]
        found = self._followed([*goals, CoordinateGoal(number, value)], None)
        return self._pose(found, abs(CoordinateGoal(number, value).away(self.linkage, self.position)))

    def _changed(self, message: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(message, "name")
        slider = next((slider for slider in self.sliders if slider.name == name), None)
        if slider is None:
            raise unknown("number that can be changed", name, [slider.name for slider in self.sliders])
        wanted = _number(message, "value")
        reached = self._with_number(name, wanted, (slider.high - slider.low) / _PARTS)
        remark = ""
        if reached != wanted:
            held = ", ".join(self.fixed)
            there = f" while {held} {'are' if len(self.fixed) > 1 else 'is'} held" if held else ""
            remark = f"{name} = {wanted:.6g} cannot be assembled{there}: {reached:.6g} is as far as it goes."
        self._modes = ()
        return {**self._pose(None, 0.0), "name": name, "value": reached, "remark": remark}

    def _driven(self, message: Mapping[str, Any]) -> dict[str, Any]:
        number = self._coordinate(message)
        if number not in self.driving:
            first = [self.linkage.names[number], *(self.linkage.names[k] for k in self.driving)]
            driving = driving_coordinates(self.linkage, self.position, first)
            if number not in driving:
                raise MechanismError(f"{self.linkage.names[number]!r} does not move here: drive another coordinate.")
            self.driving = driving
        self.active = number
        self.readings.drive(number)
        return self._shapes()

    def _shapes(self) -> dict[str, Any]:
        self.path = self._path()
        return {
            **self.scene.data(self.path, self.position),
            "kind": "shapes",
            "driving": [self._range(k) for k in self.driving],
            "active": None if self.active is None else self.linkage.names[self.active],
            "curves": self.readings.curves(self.path, self.active),
            "pose": self._pose(None, 0.0),
        }

    def _search_modes(self) -> dict[str, Any]:
        """Search for assembly modes in a thread of its own: it takes seconds, in which everything else goes on."""
        if self._search is None:
            found = list[Any]()
            arguments = self.linkage.mechanism, self.fixed, self.linkage.t, found
            self._search = threading.Thread(target=_search, args=arguments, daemon=True), found, dict(self.numbers)
            self._search[0].start()
        return self._found_modes()

    def _found_modes(self) -> dict[str, Any]:
        if self._search is not None:
            thread, found, numbers = self._search
            if thread.is_alive():
                return {"kind": "modes", "isSearching": True}
            self._search = None
            if isinstance(found[0], Exception):
                raise found[0]
            positions = [closed_near(self.linkage, self.linkage.at(q)) for q in found[0]]
            self._modes = tuple(at for at in positions if at is not None) if numbers == self.numbers else ()
        return {"kind": "modes", "count": len(self._modes), "present": self._present_mode()}

    def _switched(self, message: Mapping[str, Any]) -> dict[str, Any]:
        index = message.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(self._modes):
            raise MechanismError(f"index must be that of one of {len(self._modes)} assembly modes, got {shown(index)}.")
        self.position, self._memory = self._modes[index], None
        return {**self._shapes(), "present": index, "count": len(self._modes)}

    def _reset(self) -> dict[str, Any]:
        self.linkage.set(without_drivers(self.given))
        self.numbers, self.position, self._memory, self._modes = {}, self._start, None, ()
        return {**self._shapes(), "sliders": [vars(slider) for slider in self.sliders]}

    def _exported(self) -> dict[str, Any]:
        return {"kind": "export", **exported(self.mechanism, self.numbers, self.fixed, self.state, self.title)}

    # --- what answers are made of ---------------------------------------------------------------------------

    def _pose(self, found: Followed | None, missed: float) -> dict[str, Any]:
        """The present poses; `missed` [m, rad]: how far the goal is."""
        is_met = found is None or found.missed <= _MET
        return {
            "kind": "pose",
            **self.scene.poses(self.position),
            "driving": [self._shown(k) for k in self.driving],
            "readings": self.readings.at(self.position),
            "present": self._present_mode(),
            "isReached": is_met,
            "isDone": found is None or found.is_done or is_met,
            "missed": 0.0 if is_met else missed,
        }

    def _followed(self, goals: list[AbstractGoal], memory: Memory | None) -> Followed:
        found = follow(self.linkage, self.position, goals, memory)
        self.position = found.position
        return found

    def _path(self) -> Path:
        if self.active is None:
            return Path([self.position], False)
        held = [k for k in self.driving if k != self.active]
        return path_along(self.linkage, self.position, self.active, held)

    def _range(self, number: int) -> dict[str, Any]:
        """A driving coordinate with its range: that of the path, or what it can be at most."""
        value = float(self.position.coordinates[number])
        room = math.pi if self.linkage.is_angle[number] else float(self.linkage.length)
        low, high = value - room, value + room
        if number == self.active and len(self.path.positions) > 1:
            values = self.readings.unwrapped(self.path, number)
            low, high = float(values.min()), float(values.max())
        if self.linkage.is_angle[number] and high - low > 2 * math.pi - 0.2:
            low, high = -math.pi, math.pi
        name = self.linkage.names[number]
        return {
            "name": name,
            "low": low,
            "high": high,
            "value": _within(value, low, high, self.linkage.is_angle[number]),
        }

    def _shown(self, number: int) -> float:
        return float(self.position.coordinates[number])

    def _with_number(self, name: str, wanted: float, part: float) -> float:
        """Change a number as far as the loops can be closed, and return the value that is reached."""
        mechanism = self.linkage.mechanism
        value = float(self.numbers.get(name, next(s.value for s in self.sliders if s.name == name)))
        goals = [CoordinateGoal(k, float(self.position.coordinates[k])) for k in self.driving]
        halvings = 0
        while value != wanted and halvings <= _HALVINGS:
            size = min(part * 0.5**halvings, abs(wanted - value))
            trial = wanted if size == abs(wanted - value) else value + math.copysign(size, wanted - value)
            changed = with_number(mechanism, name, trial)
            self.linkage.set(changed)
            at = closed_near(self.linkage, self.linkage.at(self.position.q), 10 * _SAME + 0.5)
            if at is None:
                halvings += 1
                continue
            found = follow(self.linkage, at, goals)
            if found.missed > _MET:
                halvings += 1
                continue
            mechanism, value, self.position = changed, trial, found.position
        self.linkage.set(mechanism)
        if value == next(s.value for s in self.sliders if s.name == name):
            self.numbers.pop(name, None)
        else:
            self.numbers[name] = value
        self._memory = None
        return value

    def _present_mode(self) -> int | None:
        """Which of the assembly modes that were found the position is in, if it is one of them."""
        length = float(self.linkage.length)
        near = (k for k, at in enumerate(self._modes) if pose_distance(at.poses, self.position.poses, length) < _SAME)
        return next(near, None)

    def _coordinate(self, message: Mapping[str, Any]) -> int:
        name = _text(message, "name")
        if name not in self.linkage.names:
            raise unknown("coordinate of a joint", name, self.linkage.names)
        return self.linkage.names.index(name)

    def _released_text(self) -> str:
        names = [driver.name for driver in self.given.drivers]
        if not names:
            return ""
        verb, their = ("is", "its") if len(names) == 1 else ("are", "their")
        return f"{', '.join(names)} {verb} released: you move the mechanism in {their} place."


def _search(mechanism: Mechanism, fixed: Mapping[str, float], t: float, found: list[Any]) -> None:
    """Append the coordinates of assembly modes, or the error that says why there are none."""
    try:
        modes = assembly_modes(mechanism, fixed, t=t, tries=_TRIES)
        found.append([np.asarray(state.q) for state in modes if bool(is_successful(state.result))])
    except Exception as error:  # shown where it was asked for
        found.append(error)


def without_drivers(mechanism: Mechanism) -> Mechanism:
    """The mechanism without its drivers, and without controllers and sensors that need them."""
    if not mechanism.drivers:
        return mechanism
    less: list[dict[str, Any]] = [{}, {"controllers": []}, {"controllers": [], "sensors": []}]
    for parts in less[:-1]:
        try:
            return mechanism.replaced(drivers=[], **parts)
        except MechanismError:
            continue
    return mechanism.replaced(drivers=[], **less[-1])


def _within(value: float, low: float, high: float, is_angle: bool) -> float:
    """An angle in a range, up to whole turns."""
    return low + (value - low) % (2 * math.pi) if is_angle and not low <= value <= high else value


def _number(message: Mapping[str, Any], key: str) -> float:
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise MechanismError(f"{key} must be a finite number, got {shown(value)}.")
    return float(value)


def _text(message: Mapping[str, Any], key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise MechanismError(f"{key} must be a name, got {shown(value)}.")
    return value


def _vector(message: Mapping[str, Any], key: str, size: int) -> np.ndarray:
    values = message.get(key)
    if not isinstance(values, list) or len(values) != size:
        raise MechanismError(f"{key} must have {size} numbers, got {shown(values)}.")
    return np.array([_number({key: value}, key) for value in values])
