"""Output channels of a single state by name."""

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
    """Return quantities of one state by name: the same names as in `solution[name]`.

    They include joint coordinates and their rates (`"R.angle"`, `"R.angle_rate"`) in every kind of coordinates, vectors
    (`"rod.position"`), sensors and energies. Accelerations, multipliers and reactions are those of `M v̇ + Cᵀ λ = F`,
    `C v̇ = γ` at the state. The function works under `jit` and `vmap`, and is differentiable with respect to the
    mechanism and the state.

    **Arguments:** the `mechanism` that the `state` belongs to; `names`, one name or several.

    **Returns:** the value, or a dictionary of values if `names` has several.

    **Raises:** `MechanismError` if the state belongs to another mechanism or a name does not exist.

        >>> read(mechanism, assemble(mechanism, {"R.angle": 0.3}), "R.angle_rate")
    """
    check_state(mechanism, state)
    requested = (names,) if isinstance(names, str) else checked_names("read: names", names, "rod.position")
    units = channel_units(mechanism)
    for name in requested:
        if name not in units and name != TIME:
            raise unknown("quantity", name, units)
    values = _read(mechanism, state, requested)
    return values[requested[0]] if isinstance(names, str) else {name: values[name] for name in requested}


@cached_on_disk
def _read(mechanism: Mechanism, state: State, names: tuple[str, ...]) -> dict[str, Array]:
    """Return the named quantities; XLA removes all others from the compiled program as dead code."""
    equations = Equations(mechanism)
    motion = motion_of(Stabilized(), equations, state.t, state.q, state.v)
    return readings(equations, names, Snapshot(state.t, state.q, state.v, motion.vdot, motion.lam))
