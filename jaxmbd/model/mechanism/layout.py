"""What the state of a mechanism consists of: the one place that knows its blocks and their entries.

    y = (q, v, z)       q̇ = N(q) v,   M v̇ + Cᵀ λ = F(t, q, v, z),   ż = g(t, q, v, z)

An integration carries beside them quadratures, at the end of `z`, and memory `m`, which changes only between steps: the
selected constraint rows (`analyses/simulation/integration.py`).
"""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Block:
    """Entries of a state, in their order: names, `"rod.theta"`, units, and typical sizes in these units.

    The errors of states of parts are controlled in terms of their sizes, 1e5 for a pressure in Pa. `held`: the numbers
    of the entries that change at instants alone.
    """

    names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()
    held: tuple[int, ...] = ()

    @property
    def owners(self) -> tuple[str, ...]:
        """The part that each entry belongs to; empty for generalized speeds of a user."""
        return tuple(name.partition(".")[0] if "." in name else "" for name in self.names)

    @property
    def moving(self) -> tuple[int, ...]:
        """The numbers of the entries that have rates."""
        return tuple(k for k in range(len(self.names)) if k not in self.held)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Layout:
    """The blocks of a state: coordinates `q`, the poses of bodies or the coordinates of joints, then integrated joint
    angles; generalized speeds `v`; states of parts `z`.

        >>> layout = mbd.examples.get("pendulum").mechanism.layout
        >>> layout.q.names, layout.v.units, layout.q.owners
        (('rod.x', 'rod.y', 'rod.theta'), ('m/s', 'm/s', 'rad/s'), ('rod', 'rod', 'rod'))
    """

    q: Block
    v: Block
    z: Block = Block()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all entries, `q`, `v`, then `z`."""
        return (*self.q.names, *self.v.names, *self.z.names)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of all entries."""
        return (*self.q.units, *self.v.units, *self.z.units)

    @cached_property
    def places(self) -> dict[str, tuple[str, int]]:
        """The block of each entry, and its place there: `places["rod.omega"]` is `("v", 2)`."""
        return {name: (block, k) for block in "qvz" for k, name in enumerate(getattr(self, block).names)}
