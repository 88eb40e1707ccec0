"""The system report: degrees of freedom, coordinates, constraints and reactions, as text and as data."""

from dataclasses import dataclass

import numpy as np

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.redundancy import SINGULAR, RedundantRow, jacobian, redundancy
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import PointConstraint
from jaxmbd.model.mechanism.exact_axes import EXACT_TEXT, NearlyParallel, nearly_parallel
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.numerics.linear_solve import pivot_columns, rank_of
from jaxmbd.state.state import State, check_state

_PIVOT = 0.1  # share of the largest pivot: a later variable is taken as dependent unless its pivot is smaller than that


@dataclass(frozen=True)
class Description:
    """The system of equations of a mechanism. `print` shows it as a report.

    - `kind`: the kind of coordinates, `"absolute"` or `"joint"`;
    - `freedom`: the number of degrees of freedom that the joints leave; `remaining_freedom`: the number that remains
      when the drivers prescribe their coordinates;
    - `coordinates`, `speeds`: the names of the entries of `q` and `p`; `turns`: joint angles in space that follow the
      coordinates in `q`, so that whole turns count (`state.q` has them, too);
    - `constraints`: name, kind and number of rows of each constraint, without drivers;
    - `redundant`: the rows that are linear combinations of other rows;
    - `driven`: the coordinates that drivers prescribe, including those that are not variables of the system;
    - `independent`, `dependent`: the remaining variables, divided at the given state into `remaining_freedom` variables
      that can be chosen freely and those that follow from the constraints and drivers;
    - `reactions`: the loads in cut joints that are unknowns of the equations;
    - `tree`: the joints of the spanning tree;
    - `own_states`: the states of parts; `controllers`: the name of each controller, what it reads and what it drives;
    - `nearly_parallel`: axes on a body that are parallel up to 1e-5 rad, but not exactly;
    - `is_singular`: True if redundant rows are independent beside the state (`Redundancy.is_singular`).
    """

    kind: str
    freedom: int
    remaining_freedom: int
    coordinates: tuple[str, ...]
    turns: tuple[str, ...]
    speeds: tuple[str, ...]
    constraints: tuple[tuple[str, str, int], ...]
    redundant: tuple[RedundantRow, ...]
    independent: tuple[str, ...]
    dependent: tuple[str, ...]
    driven: tuple[str, ...]
    reactions: tuple[str, ...]
    tree: tuple[str, ...]
    own_states: tuple[str, ...] = ()
    controllers: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()
    nearly_parallel: tuple[NearlyParallel, ...] = ()
    is_singular: bool = False

    @property
    def rows(self) -> int:
        """The number of algebraic constraint rows, without those of drivers."""
        return sum(size for _, _, size in self.constraints)

    def __repr__(self) -> str:
        lines = [self._headline()]
        lines += [f"Coordinates q ({len(self.coordinates)}, {self.kind}): {_join(self.coordinates)}"]
        if self.turns:
            lines += [f"Angles that follow them in q, to count whole turns ({len(self.turns)}): {_join(self.turns)}"]
        lines += [f"Speeds p ({len(self.speeds)}): {_join(self.speeds)}"]
        rated = [_acceleration_name(name) for name in self.speeds]
        lines += [f"Accelerations ṗ ({len(rated)}): {_join(rated)}"]
        if self.own_states:
            lines += [f"States of parts z ({len(self.own_states)}): {_join(self.own_states)}"]
        lines += [f"Controller {n}: reads {_join(read)}; drives {_join(to)}" for n, read, to in self.controllers]
        if self.kind == "joint":
            lines += [f"Joints that carry them: {_join(self.tree)}"]
        quaternions = [name.removesuffix(".e0") for name in self.coordinates if name.endswith(".e0")]
        if quaternions:
            lines += [
                f"Four Euler parameters, of norm one, stand for three degrees of freedom each of: {_join(quaternions)}"
            ]
        if self.constraints:
            rows = [f"{name} ({kind}, {size} row{'s' * (size != 1)})" for name, kind, size in self.constraints]
            lines += [f"Constraints: {_join(rows)}", f"Reactions f: {_join(self.reactions)}"]
        lines += [f"Redundant: {repeat}." for repeat in self.redundant]
        lines += [SINGULAR] * self.is_singular
        lines += [f"Nearly parallel: {axes}; {EXACT_TEXT}." for axes in self.nearly_parallel]
        lines += [f"Independent variables ({len(self.independent)}): {_join(self.independent)}"]
        lines += [f"Dependent variables ({len(self.dependent)}): {_join(self.dependent)}"]
        lines += [f"Driven variables ({len(self.driven)}): {_join(self.driven)}"]
        return "\n".join(lines)

    def _headline(self) -> str:
        coordinates = f"{len(self.coordinates)} generalized coordinate{'s' * (len(self.coordinates) != 1)}"
        coupled = f" coupled by {self.rows} algebraic constraint{'s' * (self.rows != 1)}" if self.rows else ""
        repeats = self.freedom - (len(self.speeds) - self.rows)  # by the rank that the degrees of freedom come from
        repeated = f", {repeats} of them redundant" if repeats else ""
        return f"The system has {self._freedom()}. It is modelled using {coordinates}{coupled}{repeated}."

    def _freedom(self) -> str:
        freedom = f"{self.freedom} degree{'s' * (self.freedom != 1)} of freedom"
        if not self.driven:
            return freedom
        drivers = "its driver leaves" if len(self.driven) == 1 else f"its {len(self.driven)} drivers leave"
        return f"{freedom}, of which {drivers} {self.remaining_freedom or 'none'}"


def describe(mechanism: Mechanism, state: State | None = None) -> Description:
    """Return the system report of a mechanism.

    **Arguments:** `state`, at which ranks are computed and variables are divided into independent and dependent ones;
    by default an assembled state.

    **Returns:** a `Description`: print it, or read its fields.

        >>> system = mbd.describe(mbd.examples.get("slider-crank").mechanism)
        >>> system.freedom, system.rows, system.independent
        (1, 8, ('crank.theta',))
    """
    state = assemble(mechanism) if state is None else state
    check_state(mechanism, state)
    constraints, sizes = mechanism.constraints(), mechanism.constraint_sizes()
    pairs = list(zip(constraints, sizes, strict=True))
    joints = [
        (part, size) for part, size in pairs if not isinstance(part, PositionDriverConstraint | SpeedDriverConstraint)
    ]
    count = sum(size for _, size in joints)
    C, variables = jacobian(mechanism, state.t, state.q), mechanism.variables
    driven = tuple(dict.fromkeys(driver.coordinate for driver in mechanism.drivers))
    # Prescribed variables do not move. The other variables follow from the rows of joints, and from those of drivers
    # whose coordinates are not variables of the system.
    prescribed = [i for i, name in enumerate(variables) if name in driven]
    free = np.isin(np.arange(len(variables)), prescribed, invert=True)
    dependent = list(np.flatnonzero(pivot_columns(C * free, _PIVOT)))
    independent = [i for i in range(len(variables)) if i not in dependent and i not in prescribed]
    found = redundancy(mechanism, state)
    return Description(
        kind=mechanism.coordinates,
        freedom=mechanism.nv - int(rank_of(C[:count])),
        remaining_freedom=mechanism.nv - int(rank_of(C)),
        coordinates=mechanism.tree.coordinates,
        turns=mechanism.turns,
        speeds=mechanism.speed_names,
        constraints=tuple((part.name, type(mechanism[part.name]).__name__, size) for part, size in joints),
        redundant=found.repeats,
        is_singular=found.is_singular,
        independent=tuple(variables[i] for i in independent),
        dependent=tuple(variables[i] for i in dependent),
        driven=driven,
        reactions=load_names(mechanism),
        tree=mechanism.tree.joints,
        own_states=mechanism.layout.z.names,
        controllers=tuple((part.name, part.reads, part.driven) for part in mechanism.controllers),
        nearly_parallel=nearly_parallel(mechanism),
    )


def load_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the name of the load of each constraint row: `"B.Fx"`, …; for a driver its effort."""
    each = zip(mechanism.row_labels(), signed_loads(mechanism), strict=True)
    return tuple(f"{name}.{load.removeprefix('-') or f'lambda{row + 1}'}" for (name, row), load in each)


def signed_loads(mechanism: Mechanism) -> tuple[str, ...]:
    """Return for each row the load that its multiplier stands for, with a "-" if it is minus the multiplier; "" if it
    stands for none."""
    names: list[str] = []
    for part, size in zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True):
        loads: tuple[str, ...] = ()
        if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint):
            loads = ("-effort",)
        elif isinstance(part, AbstractJoint):
            loads = part.plane_loads if mechanism.space.dim == 2 and part.plane_loads else part.loads
            without = part.without if isinstance(part, PointConstraint) else ()
            loads = tuple("" if load == "lambda" else load for load in loads if load[-1] not in without)
        names += loads if len(loads) == size else ("",) * size
    return tuple(names)


def _acceleration_name(speed: str) -> str:
    owner, _, component = speed.rpartition(".")
    return (
        f"{owner}.{component.removesuffix('_rate')}_acceleration" if component.endswith("_rate") else f"d({speed})/dt"
    )


def _join(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names) if names else "none"
