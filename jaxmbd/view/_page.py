"""`page`: one file with everything that a browser needs to show motions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from jaxmbd.analyses.simulation.solution import Solution, at_instant
from jaxmbd.arrays import Number, is_concrete
from jaxmbd.checks import as_path, check_instance, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.scene.looks import remark
from jaxmbd.scene.motion import check_rate
from jaxmbd.scene.pieces import BODIES, INK, REACTION
from jaxmbd.scene.scene import AZIM, ELEV, Scene, check_view
from jaxmbd.state.state import State, check_state
from jaxmbd.view._curves import panels_data
from jaxmbd.view._display import embedded, show_html
from jaxmbd.view._motion import Recording, common_scales
from jaxmbd.view._numbers import Numbers
from jaxmbd.view._page_text import page_text

# The scripts of the page, which are put together in this order.
_SCRIPTS = ("numbers", "motion", "axes", "theme", "clock", "{renderer}", "overlay", "curves", "controls", "main")
_SPEEDS = tuple(float(f"{digit}e{power}") for power in range(-6, 4) for digit in (1, 2, 5))
_HEIGHT = 600  # [px] of a frame in a notebook
_PLEASANT = (2.0, 30.0)  # [s] a motion that takes less or more to play is slowed down or sped up


@dataclass(frozen=True)
class Page:
    """A self-contained page, as text; a notebook shows it where it is the value of a cell."""

    html: str

    def __repr__(self) -> str:
        return f"Page of {len(self.html) / 1e6:.2f} MB; save(path) writes it to a file, show() shows it"

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file and return its path."""
        target = as_path("save", path)
        target.write_text(self.html, encoding="utf-8")
        return target

    def show(self, height: int = _HEIGHT) -> None:
        """Show the page in a notebook below the cell, `height` [px] high; else in the browser, as a temporary file."""
        show_html(self.html, height)

    def _repr_html_(self) -> str:
        return embedded(self.html, _HEIGHT)


def page(
    motions: Solution | Mechanism | Mapping[str, Solution],
    state: State | None = None,
    *,
    channels: str | Iterable[str] = (),
    measured: Mapping[str, object] | None = None,
    reactions: str | Iterable[str] = (),
    trace: str | Iterable[str] = (),
    title: str = "",
    speed: Number | None = None,
    elev: Number | None = None,
    azim: Number | None = None,
) -> Page:
    """Make a page that shows a motion, several motions on top of each other, or a single state.

    The page is one file, which needs no network: a picture that can be turned, moved and magnified (in the plane moved
    and magnified), with controls for the time, and curves beside it whose cursor is the time. Between frames the page
    interpolates; the frames hold the saved times of the motion, at which poses are those of the solution.

    **Arguments:**

    - `motions`: a `Solution`, of which one that failed is shown until then, with the reason; or several by name, which
      are shown together, each in a colour of its own, the first one solid; or a mechanism, with its `state`;
    - `channels`: names of `solution.names` whose curves are drawn, in a panel for each unit, or, of several motions,
      for each name; `measured`: samples beside the curves of the first motion, as in `plot.channels`;
    - `reactions`: names of joints (or drivers) whose force on their second body is drawn;
    - `trace`: names of `Point` sensors, or of bodies for their centres of mass, whose paths are drawn;
    - `title`: the heading of the page;
    - `speed`: seconds of the motion per second at the start; default: 1, or what makes it last from 2 s to 30 s;
    - `elev`, `azim`: in space, the first direction of view [degrees], as in `plot.draw`.

    **Returns:** a `Page`: `page.save("bricard.html")`, `page.show()`.

    **Raises:** `MechanismError` for names that do not exist, motions that do not fit together (in the plane and in
    space), a direction of view in the plane, a batch of motions, and coordinates, forces, a direction of view or a
    speed that are not finite.

        >>> from jaxmbd import view
        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
        >>> view.page(solution, channels=["O.angle", "energy"], trace=["rod"]).save("pendulum.html").name
        'pendulum.html'
    """
    solutions = _solutions(motions, state)
    for solution in solutions.values():
        check_view(solution.mechanism, (elev, azim))
    check_instance("title", title, str, "a string")
    if speed is not None:
        check_rate("speed", speed)
    recordings = _recordings(
        solutions,
        checked_names("reactions", _several(reactions), "O"),
        checked_names("trace", _several(trace), "tip"),
    )
    numbers, scenes, overlaid = Numbers(), [recording.scene for recording in recordings], len(recordings) > 1
    scales = common_scales(scenes)
    span = [min(float(r.times[0]) for r in recordings), max(float(r.times[-1]) for r in recordings)]
    limits = np.array([scene.limits for scene in scenes])
    data = {
        "title": title,
        "remark": " ".join([*_reasons(recordings), *_coarser(scenes)]),
        "dimension": scenes[0].geometry.dim,
        "span": span,
        "speed": _speed(span[1] - span[0]) if speed is None else float(speed),
        "limits": np.stack([limits[..., 0].min(axis=0), limits[..., 1].max(axis=0)], axis=1).tolist(),
        "view": {"elev": float(ELEV if elev is None else elev), "azim": float(AZIM if azim is None else azim)},
        "ink": INK,
        "reactionColour": REACTION,
        "legend": _legend(scenes, scales),
        "motions": [
            recording.data(numbers, BODIES[k % len(BODIES)] if overlaid else None, scales)
            for k, recording in enumerate(recordings)
        ],
        "panels": panels_data(
            solutions, _several(channels), measured or {}, numbers, lambda name: _naming(name, solutions)
        ),
    }
    return Page(_assembled(data, numbers))


def _reasons(recordings: Sequence[Recording]) -> list[str]:
    """Why motions ended early."""
    named = len(recordings) > 1
    return [f"{r.name}: {r.remark}" if named else r.remark for r in recordings if r.remark]


def _coarser(scenes: Sequence[Scene]) -> Iterable[str]:
    """Which meshes are drawn with fewer triangles than they have, each once."""
    return filter(None, dict.fromkeys(remark(scene.geometry.mechanism) for scene in scenes))


def _several(names: str | Iterable[str]) -> Iterable[str]:
    return (names,) if isinstance(names, str) else names


def _solutions(motions: Any, state: State | None) -> dict[str, Solution]:
    """The motions by name, checked; a single one has no name."""
    if isinstance(motions, Mechanism):
        if state is None:
            raise MechanismError("To show a mechanism, give its state too: page(mechanism, state).")
        check_state(motions, state)
        motions = at_instant(motions, state)
    elif state is not None:
        raise MechanismError("A state belongs to a mechanism, page(mechanism, state); a solution has its own states.")
    named = dict(motions) if isinstance(motions, Mapping) else {"": motions}
    if not named:
        raise MechanismError("page needs at least one motion, got none.")
    for name, solution in named.items():
        what = f"motions[{name!r}]" if isinstance(motions, Mapping) else "motions"
        check_instance("the name of a motion", name, str, "a string")
        check_instance(what, solution, Solution, "a Solution of simulate or kinematics")
        if not is_concrete(solution) or np.ndim(solution.q) != 2:
            raise MechanismError(
                f"{what} is a batch or being traced: its q has shape {np.shape(solution.q)}, not (times, nq). "
                "Take one motion of it, jax.tree.map(lambda x: x[0], solution), outside of jit and vmap."
            )
    dimensions = {name: solution.mechanism.space.dim for name, solution in named.items()}
    if len(set(dimensions.values())) > 1:
        flat = [name for name, dim in dimensions.items() if dim == 2]
        solid = [name for name, dim in dimensions.items() if dim == 3]
        raise MechanismError(f"Motions in the plane and in space do not fit together: {flat} and {solid}.")
    return named


def _recordings(solutions: Mapping[str, Solution], *names: tuple[str, ...]) -> list[Recording]:
    """The motions with the names of their reactions and traces; symbols of several motions have one size."""

    def recorded(size: float | None) -> list[Recording]:
        found = []
        for name, solution in solutions.items():
            with _naming(name, solutions):
                found.append(Recording(name, solution, *names, size=size))
        return found

    recordings = recorded(None)
    return recordings if len(solutions) == 1 else recorded(max(recording.scene.size for recording in recordings))


@contextmanager
def _naming(name: str, solutions: Mapping[str, Solution]) -> Iterator[None]:
    """Name one of several motions in errors."""
    try:
        yield
    except MechanismError as error:
        if len(solutions) == 1:
            raise
        raise MechanismError(f"motions[{name!r}]: {error}") from error


def _legend(scenes: Sequence[Scene], scales: Mapping[tuple[str, str], float]) -> dict[str, object] | None:
    """The legend of the largest reactions, to the scale that all motions share."""
    legend = max((scene.legend for scene in scenes if scene.legend), key=lambda one: one.value, default=None)
    if legend is None:
        return None
    scale = max(scale for (_, colour), scale in scales.items() if colour == REACTION)
    return legend._replace(length=legend.value / scale)._asdict()


def _speed(duration: float) -> float:
    """The speed of the series 1, 2, 5 next to 1 at which a motion lasts a pleasant time."""
    if not duration > 0:
        return 1.0
    fast, slow = duration / _PLEASANT[0], duration / _PLEASANT[1]
    return next((s for s in _SPEEDS if s >= slow), slow) if slow > 1 else min(1.0, max(s for s in _SPEEDS if s <= fast))


def _assembled(data: dict[str, Any], numbers: Numbers) -> str:
    """The text of the page; names of users are in JSON, in which no `<` can end the script."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    held = f'<script id="data" type="application/json">{text}</script>\n'
    held += f'<script id="numbers" type="text/plain">{numbers.text()}</script>'
    return page_text(data["title"], data["dimension"], _SCRIPTS, held, '  <section id="curves" hidden></section>\n')
