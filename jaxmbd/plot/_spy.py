"""`spy`: the sparsity pattern of the augmented matrix."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.model.body.flexible import flexible, own_coordinates, owner_of
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import PositionDriverConstraint
from jaxmbd.plot._style import PALE, TEXT, new_figure, plain
from jaxmbd.scene.pieces import GREY, INK
from jaxmbd.state.state import State

_ZERO = 1e-12  # the size of rounding errors, such as cosines of right angles, relative to the largest entry of a row
_COLOURS = ("#ffffff", "#cfe3f1", "#fbe3cf", "#0072B2", "#D55E00")  # empty, blocks of M and C, their entries
_SIZE = 0.16  # the size of an entry [in]
_LOW, _HIGH = 3.2, 7.0  # the least and greatest size of the matrix [in]


def spy(mechanism: Mechanism, state: State, *, axes: Axes | None = None) -> Axes:
    """Plot the sparsity pattern of the augmented matrix `[[M, Cᵀ], [C, 0]]` at a state.

    Lines separate the blocks of bodies (in joint coordinates: of tree joints) and of constraints, which are labelled
    with their names. Blocks that are structurally nonzero are pale; entries that are nonzero at this state are dark.

    **Arguments:** `state`, whose time and coordinates are used; `axes`, the axes to draw in; default: a new figure.

    **Returns:** the axes.

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum")
        >>> axes = plot.spy(pendulum.mechanism, pendulum.state())
    """
    matrix = augmented_matrix(mechanism, state)
    kinds, filled = _kinds(mechanism, matrix), _filled(matrix)
    labels, sizes = _labels(mechanism)
    if axes is None:
        side = float(np.clip(_SIZE * len(matrix), _LOW, _HIGH))
        axes = new_figure(side + 1.2, side + 1.2).add_subplot()
    n = len(matrix)
    colours = {"cmap": ListedColormap(_COLOURS), "vmin": 0, "vmax": 4, "interpolation": "nearest"}
    axes.imshow(np.where(filled, kinds + 2, kinds), extent=(0, n, n, 0), aspect="equal", **colours)
    _lines(axes, sizes, mechanism.nv)
    _names(axes, labels, sizes)
    count, total = int(np.count_nonzero(filled)), n * n
    axes.set_xlabel(f"{n} × {n}, {count} entries not zero ({100 * count / total:.0f} %)", fontsize=TEXT)
    return axes


def augmented_matrix(mechanism: Mechanism, state: State) -> Float[np.ndarray, "n n"]:
    """`[[M, Cᵀ], [C, 0]]` at a state, dense."""
    M, C = (np.asarray(x) for x in _matrices(mechanism, jnp.asarray(state.t), state.q))
    return np.block([[M, C.T], [C, np.zeros((len(C), len(C)))]])


@cached_on_disk
def _matrices(mechanism: Mechanism, t: Array, q: Array) -> tuple[Array, Array]:
    at = Equations(mechanism).at(t, q)
    return at.inertia.matrix(), at.jacobian


def _filled(matrix: np.ndarray) -> np.ndarray:
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    return np.abs(matrix) > _ZERO * np.minimum(largest, largest.T)


def _kinds(mechanism: Mechanism, matrix: np.ndarray) -> np.ndarray:
    """The structural pattern: 1 in the blocks of `M`, 2 in those of `C`, 0 elsewhere."""
    tree, nv, names = mechanism.tree, mechanism.nv, [body.name for body in mechanism.bodies]
    moved = np.zeros((len(names), nv), dtype=bool)  # True if a body's motion depends on a speed
    for i in range(len(names)):
        on_path = {branch.child: branch for branch in tree.branches}
        here = i
        while here in on_path:
            moved[i, slice(*on_path[here].v)] = True
            here = on_path[here].parent
    own = own_coordinates(mechanism.bodies)
    for speed, name in enumerate(own, start=nv - len(own)):
        moved[names.index(owner_of(name)), speed] = True
    if mechanism.speeds is not None:
        moved[:] = True
    kinds = np.zeros(matrix.shape, dtype=int)
    kinds[:nv, :nv] = moved.T.astype(int) @ moved.astype(int) > 0
    row = nv
    for part, size in zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True):
        is_local = isinstance(part, AbstractJoint | PositionDriverConstraint)
        touched = [owner_of(marker.body) for marker in part.markers] if is_local else names
        columns = np.flatnonzero(moved[[names.index(name) for name in touched if name in names]].any(axis=0))
        kinds[row : row + size, columns] = 2
        kinds[columns, row : row + size] = 2
        row += size
    return kinds


def _labels(mechanism: Mechanism) -> tuple[list[str], list[int]]:
    """Names and sizes of the blocks: bodies or tree joints, then constraints and drivers."""
    branches = [(branch.joint, branch.v[1] - branch.v[0]) for branch in mechanism.tree.branches]
    branches += [(body.name, len(body.own_coordinates)) for body in flexible(mechanism.bodies).values()]
    if mechanism.speeds is not None:
        branches = [(name, 1) for name in mechanism.speed_names]
    branches = [(name, size) for name, size in branches if size]
    labels = [*(name for name, _ in branches), *(part.name for part in mechanism.constraints())]
    return labels, [size for _, size in branches] + list(mechanism.constraint_sizes())


def _lines(axes: Axes, sizes: list[int], nv: int) -> None:
    for edge in np.cumsum(sizes)[:-1]:
        strong = edge == nv
        style = {"color": INK if strong else PALE, "linewidth": 1.2 if strong else 0.7, "zorder": 2 + strong}
        axes.axhline(edge, **style)
        axes.axvline(edge, **style)


def _names(axes: Axes, labels: list[str], sizes: list[int]) -> None:
    """Write the names of the blocks on the left and at the top, in smaller type if there are many."""
    middles = np.cumsum(sizes) - np.array(sizes) / 2
    labels = [plain(label) for label in labels]
    size = float(np.clip(180 / len(labels), 4.5, 8.0))
    axes.set_xticks(middles, labels, rotation=90, fontsize=size)
    axes.set_yticks(middles, labels, fontsize=size)
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_color(GREY)
