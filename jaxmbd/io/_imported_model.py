"""What a file of another program becomes: a mechanism, the state that the file means, and remarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.arrays import as_float
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, printable
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.printing import count_of
from jaxmbd.state.state import State, state_of

_SHOWN = 6  # names that `print` lists of those that are others here


@dataclass(frozen=True)
class Remark:
    """One thing in a file that became something else in the mechanism, or nothing.

    `part`: its kind and name in the file; `text`: what became of it; `line` in the file, None if there is none; `lost`:
    False where the mechanism moves as the file says nevertheless (another name, an exact equivalent); `renamed`: the
    name here, if nothing but the name is another.
    """

    part: str
    text: str
    line: int | None = None
    lost: bool = True
    renamed: str = ""

    def __str__(self) -> str:
        return printable((f"line {self.line}: " if self.line else "") + f"{self.part} {self.text}")


@dataclass
class Remarks:
    """The remarks on one file, while it is read."""

    path: Path
    found: list[Remark] = field(default_factory=list)

    @property
    def in_order(self) -> tuple[Remark, ...]:
        """All remarks: losses, other forms, other names; each in the order of their lines, then those without one."""
        kind = lambda own: (not own.lost, bool(own.renamed), own.line is None, own.line or 0)  # noqa: E731
        return tuple(sorted(self.found, key=kind))

    def lost(self, part: str, text: str, line: int | None = None) -> None:
        """Note what the mechanism lacks."""
        self.found.append(Remark(part, text, line))

    def changed(self, part: str, text: str, line: int | None = None) -> None:
        """Note what the mechanism has in another form."""
        self.found.append(Remark(part, text, line, lost=False))

    def renamed(self, part: str, name: str, line: int | None = None) -> None:
        """Note that a part has another name."""
        self.found.append(Remark(part, f"is called {name!r} here", line, lost=False, renamed=name))

    def error(self, part: str, text: str, line: int | None = None) -> MechanismError:
        """The error for something in the file that has no meaning."""
        return file_error(self.path, f"{part}: {text}" if part else text, line)


def file_error(path: Path, text: str, line: int | None = None) -> MechanismError:
    """The error for a file, with the line."""
    return MechanismError(f"{str(path)!r}" + (f", line {line}" if line else "") + f": {text}")


@dataclass(frozen=True)
class ImportedModel:
    """A mechanism read from a file of another program.

    `guess`: the coordinates that the file gives, and `speeds` its speeds; `remarks`: what has no counterpart, or became
    something else; `duration` [s] of the motion that the file asks for, None if it does not say. `print(model)` shows
    mechanism and remarks.
    """

    mechanism: Mechanism
    guess: Mapping[str, float]
    speeds: Mapping[str, float]
    remarks: tuple[Remark, ...] = ()
    duration: float | None = None

    @cached_property
    def state(self) -> State:
        """The assembled state next to the one that the file means.

        Positions are closed by `assemble`. With `v₀` the speeds of the file (zero where it gives none), the speeds are
        the ones nearest to them that satisfy `C v = −Φ_t`: `v = v₀ − C⁺ (C v₀ + Φ_t)`.
        """
        state = assemble(self.mechanism, guess=self.guess)
        given = as_float(self._given_speeds(state))
        C, rate = map(np.asarray, _rates_of_rows(self.mechanism, state, given))
        v = given if not C.size else given - np.linalg.lstsq(C, rate, rcond=None)[0]
        return state_of(self.mechanism, state.t, state.q, v, state.rank, z=state.z)

    def _given_speeds(self, state: State) -> np.ndarray:
        """The speeds of the file; of bodies that have none in these coordinates, the ones nearest to their twists."""
        mechanism = self.mechanism
        if set(self.speeds) <= set(mechanism.speed_names):
            return np.asarray([self.speeds.get(name, 0.0) for name in mechanism.speed_names])
        own = [f"{body.name}.{speed}" for body in mechanism.bodies for speed in mechanism.space.speeds]
        twists = np.asarray([self.speeds.get(name, 0.0) for name in own])
        return np.linalg.lstsq(np.asarray(_partial_velocities(mechanism, state)), twists, rcond=None)[0]

    @property
    def lost(self) -> tuple[Remark, ...]:
        """The remarks on what the mechanism lacks."""
        return tuple(remark for remark in self.remarks if remark.lost)

    @property
    def remark_lines(self) -> tuple[str, ...]:
        """The remarks as lines of text, those on names in one."""
        renamed = [f"{remark.part} is {remark.renamed!r}" for remark in self.remarks if remark.renamed]
        lines = [str(remark) for remark in self.remarks if not remark.renamed]
        if renamed:
            more = f", and {len(renamed) - _SHOWN} more" if len(renamed) > _SHOWN else ""
            lines.append(f"{count_of(len(renamed), 'other name')}: {', '.join(renamed[:_SHOWN])}{more}")
        return tuple(lines)

    def __str__(self) -> str:
        head = count_of(len(self.remarks), "remark") if self.remarks else "no remarks"
        return "\n".join([str(self.mechanism), head, *(f"  {line}" for line in self.remark_lines)])


@cached_on_disk
def _partial_velocities(mechanism: Mechanism, state: State) -> jax.Array:
    """`J`, the derivatives of the twists of all bodies with respect to the speeds."""
    at = Equations(mechanism).at(state.t, state.q)
    return jax.jacfwd(lambda v: at.twists(v).reshape(-1))(state.v)


@cached_on_disk
def _rates_of_rows(mechanism: Mechanism, state: State, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`C` and `C v + Φ_t`."""
    at = Equations(mechanism).at(state.t, state.q)
    return at.jacobian, at.velocity(v)


def check_strict(path: Path, remarks: Sequence[Remark]) -> None:
    """Raise if something that moves the mechanism has been lost between it and the file."""
    lost = [str(remark) for remark in remarks if remark.lost]
    if lost:
        listed = "\n  ".join(lost)
        raise MechanismError(f"{str(path)!r}: with strict=True nothing may be lost, and this would be:\n  {listed}")
