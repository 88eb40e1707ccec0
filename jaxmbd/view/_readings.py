"""Quantities of position along a path, over the coordinate that drives it."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.dragging.linkage import Linkage, Position
from jaxmbd.analyses.dragging.path import Path
from jaxmbd.arrays import Scalar
from jaxmbd.checks import checked_names
from jaxmbd.engine import as_program, steady_call
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units, kinematic_units
from jaxmbd.state.output_channels import Reader, Snapshot

_FEW = 2  # curves that are shown where none are asked for
_OF_SPEED = ("kinetic_energy", "energy", "t")


class Readings:
    """Quantities by name; those of joints that do not drive, unless some are asked for.

    **Raises:** `MechanismError` for names that do not exist, and quantities that positions alone do not determine.
    """

    def __init__(self, linkage: Linkage, show: Iterable[str] | None, active: int | None) -> None:
        self.linkage, self._is_free = linkage, show is None
        mechanism = linkage.mechanism
        self._units = channel_units(mechanism)
        if show is not None:
            names = checked_names("show", (show,) if isinstance(show, str) else show, "tip.x")
            check_known("quantity", names, self._units)
            kinematic = kinematic_units(mechanism)
            for name in names:
                if name in _OF_SPEED or name not in kinematic or "/s" in self._units[name]:
                    raise MechanismError(
                        f"show: {name!r} depends on speeds or forces, and what is explored is at rest: show quantities "
                        "of position, such as coordinates of bodies and joints, and sensors of them."
                    )
            self._choose(names)
        self.drive(active)

    def drive(self, active: int | None) -> None:
        """Another coordinate drives."""
        self.active = active
        if self._is_free:
            others = [name for k, name in enumerate(self.linkage.names) if k != active]
            self._choose(tuple(others[:_FEW]) if active is not None else ())

    def _choose(self, names: tuple[str, ...]) -> None:
        self.names, self._run = names, None
        if names:
            linkage = self.linkage
            at = jnp.asarray(linkage.t), jnp.zeros(linkage.mechanism.nq)
            self._run = steady_call(_reading, linkage.mechanism, *at, names)

    def at(self, at: Position) -> list[list[float]]:
        """The values at a position, each with its components; the first is that of the driving coordinate."""
        first = [] if self.active is None else [[float(at.coordinates[self.active])]]
        return [*first, *(np.ravel(x).tolist() for x in self._values(at))]

    def curves(self, path: Path, active: int | None) -> dict[str, Any]:
        """The driving coordinate and the quantities along a path."""
        if active is None or len(path.positions) < 2 or not self.names:
            return {"over": None, "panels": []}
        over = self.unwrapped(path, active)
        found = [self._values(at) for at in path.positions]
        panels: dict[str, list[dict[str, Any]]] = {}
        for k, name in enumerate(self.names):
            columns = np.stack([np.ravel(values[k]) for values in found], axis=1)
            unit = self._units[name]
            for i, values in enumerate(columns):
                label = name if len(columns) == 1 else f"{name}.{'xyz'[i] if len(columns) <= 3 else i}"
                values = np.unwrap(values) if unit == "rad" else values
                panels.setdefault(unit, []).append(
                    {"label": label, "quantity": k + 1, "component": i, "values": values.tolist()}
                )
        titles = {
            unit: f"[{unit}]" if len(lines) > 1 else f"{lines[0]['label']} [{unit}]" for unit, lines in panels.items()
        }
        unit = "rad" if self.linkage.is_angle[active] else "m"
        return {
            "over": {
                "label": f"{self.linkage.names[active]} [{unit}]",
                "values": over.tolist(),
                "isAngle": unit == "rad",
            },
            "panels": [{"title": titles[unit], "unit": unit, "curves": lines} for unit, lines in panels.items()],
        }

    def unwrapped(self, path: Path, number: int) -> np.ndarray:
        """The values of a coordinate along a path, an angle without jumps of whole turns."""
        values = np.array([at.coordinates[number] for at in path.positions])
        return np.unwrap(values) if self.linkage.is_angle[number] else values

    def _values(self, at: Position) -> list[np.ndarray]:
        if self._run is None:
            return []
        with np.errstate(all="ignore"):
            return [*self._run([*self.linkage.numbers, np.asarray(at.q)])]


def _reading(mechanism: Mechanism, t: Scalar, q: Array, names: tuple[str, ...]) -> tuple[Array, ...]:
    return as_program(_quantities)(mechanism, t, q, names)


def _quantities(mechanism: Mechanism, t: Scalar, q: Array, names: tuple[str, ...]) -> tuple[Array, ...]:
    equations = Equations(mechanism)
    reader = Reader(equations, Snapshot.at_rest(equations, t, q))
    return tuple(jnp.asarray(reader.read(name), q.dtype) for name in names)
