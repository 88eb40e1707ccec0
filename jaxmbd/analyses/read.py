"""Reading quantities of a single state by name."""

from collections.abc import Iterable
from typing import Any

from jaxtyping import Array

from jaxmbd.analyses.checks import check_state
from jaxmbd.analyses.output_channels import TIME, Snapshot, channel_units
from jaxmbd.analyses.output_channels import read as readings
from jaxmbd.analyses.state import State
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import unknown
from jaxmbd.integrate.formulations.formulation import Stabilized, motion_of
from jaxmbd.model.body.checks import checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism


def read(mechanism: Mechanism, state: State, names: str | Iterable[str]) -> Any:
    """Quantities of one state by name: all that `solution[name]` knows, of a state alone.

    Joint coordinates and their rates (`"R.angle"`, `"R.angle_rate"`) whatever the mechanism's coordinates are, vectors
    (`"rod.position"`), sensors, energies; accelerations, multipliers and reactions are those of
    `M v̇ + Cᵀ λ = F`, `C v̇ = γ` at the state. Works under `jit` and `vmap`, and is differentiated by the mechanism and
    by the state.

    **Arguments:** the `mechanism` that the `state` belongs to; `names`, one name or several.

    **Returns:** the quantity, or a dictionary of several.

    **Raises:** `MechanismError` if the state belongs to another mechanism or a name does not exist.

        >>> read(mechanism, assemble(mechanism, {"R.angle": 0.3}), "R.angle_rate")
    """
    check_state(mechanism, state)
    wanted = (names,) if isinstance(names, str) else checked_names("read: names", names, "rod.position")
    known = channel_units(mechanism)
    for name in wanted:
        if name not in known and name != TIME:
            raise unknown("quantity", name, known)
    found = _read(mechanism, state, wanted)
    return found[wanted[0]] if isinstance(names, str) else {name: found[name] for name in wanted}


@cached_on_disk
def _read(mechanism: Mechanism, state: State, names: tuple[str, ...]) -> dict[str, Array]:
    """The named quantities; what none of them needs is left out of the compiled program as dead code."""
    equations = Equations(mechanism)
    motion = motion_of(Stabilized(), equations, state.t, state.q, state.v)
    return readings(equations, names, Snapshot(state.t, state.q, state.v, motion.vdot, motion.lam))
