"""`animate`, `save_animation`: the animation of a motion, and its files."""

import shutil
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.animation import Animation, FFMpegWriter, FuncAnimation, PillowWriter
from matplotlib.artist import Artist

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Number
from jaxmbd.checks import as_path, check_instance
from jaxmbd.errors import MechanismError, printable
from jaxmbd.plot._draw import picture_of
from jaxmbd.progress import reporting
from jaxmbd.scene.motion import frame_times
from jaxmbd.scene.recording import scene_of, until_failure
from jaxmbd.scene.scene import check_view
from jaxmbd.upstream.matplotlib_internals import drawn_once, frame_rate

_DPI = 120
_EMBED_LIMIT = 200.0  # size limit of a web page [MB]; matplotlib's default 20 drops frames after some ten seconds
SUFFIXES = (".html", ".gif", ".mp4")


def animate(
    solution: Solution,
    *,
    reactions: Sequence[str] = (),
    trace: Sequence[str] = (),
    fps: float | int = 30,
    speed: float | int = 1.0,
    elev: Number | None = None,
    azim: Number | None = None,
) -> FuncAnimation:
    """Animate a motion.

    Frames are equally spaced in time from the first to the last of `solution.ts`. Positions between these times are
    interpolated by cubics from positions and speeds, forces linearly.

    **Arguments:**

    - `reactions`: names of joints (or drivers) whose force on their second body is drawn; the longest arrow takes a
      fifth of the picture, and a legend gives the scale;
    - `trace`: names of `Point` sensors, or of bodies for their centres of mass, whose paths are drawn;
    - `fps`: frames per second of the film; `speed`: seconds of the motion per second of the film (`0.1` is
      slow motion);
    - `elev`, `azim`: in space, the direction of view [degrees], as in `draw`.

    **Returns:** matplotlib's `FuncAnimation`. In a notebook: `IPython.display.HTML(animation.to_jshtml())`.
    To a file: `save_animation`.

    **Raises:** `MechanismError` for names that do not exist, a rate that is not positive, a solution with a single
    time, and a direction of view for a planar mechanism.

        >>> from jaxmbd import plot
        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
        >>> film = plot.animate(solution, reactions=["O"], trace=["rod"], fps=10)
        >>> plot.save_animation(film, "pendulum.gif", dpi=40).name
        'pendulum.gif'
    """
    check_instance("solution", solution, Solution, "a Solution of simulate or kinematics")
    if len(solution.ts) < 2:
        raise MechanismError("solution has a single time: draw(solution.mechanism, solution.state(0)) shows it.")
    reactions, trace = ((wanted,) if isinstance(wanted, str) else tuple(wanted) for wanted in (reactions, trace))
    check_view(solution.mechanism, (elev, azim))
    solution, remark = until_failure(solution)
    times = frame_times(np.asarray(solution.ts), fps, speed)
    scene = scene_of(solution, reactions, trace, times)
    picture = picture_of(scene, None, (elev, azim), has_title=True)
    clock = picture.title("", is_clock=True)
    digits = max(
        0, -int(np.floor(np.log10(float(np.diff(times).min(initial=1.0))) + 1e-9))
    )  # decimals that tell frames apart

    def show(k: int) -> list[Artist]:
        ended = "   the motion failed" if remark and k == len(times) - 1 else ""
        clock.set_text(f"$t$ = {times[k]:.{digits}f} s{ended}")
        return [*picture.move(k), clock]

    show(0)
    figure = picture.axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # as laid out now: to do it for each frame would take half the time
    return FuncAnimation(figure, show, frames=len(times), interval=1000 / fps, blit=False)


# --- files ----------------------------------------------------------------------------------------------


def save_animation(
    animation: Animation, path: str | PathLike[str], *, dpi: float | int = _DPI, progress: bool = True
) -> Path:
    """Write an animation to a file, by its suffix.

    `.html`: a self-contained page with buttons; `.gif`; `.mp4`, with the system's ffmpeg or that of imageio-ffmpeg
    (`pip install jaxmbd[animation]`).

    **Arguments:** `animation` from `animate`; `path`; `dpi`, dots per inch; `progress`: whether a line on the terminal,
    or in a notebook, says how many frames are drawn.

    **Returns:** the path.

    **Raises:** `ValueError` for another suffix, or a page that is too large; `ImportError` if there is no ffmpeg.

        >>> from jaxmbd import plot
        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
        >>> plot.save_animation(plot.animate(solution, fps=5), "pendulum.gif", dpi=30).name
        'pendulum.gif'
    """
    target = as_path("save_animation", path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"Cannot save an animation as {target.name!r}: its suffix must be one of {', '.join(SUFFIXES)}."
        )
    settings: Any = {"savefig.dpi": dpi, "figure.dpi": dpi}
    if suffix == ".mp4":
        settings["animation.ffmpeg_path"] = _ffmpeg()
    said = f"drawing {printable(target.name)}"
    with mpl.rc_context(settings), drawn_once(animation), reporting(progress, f"{said} ...") as report:
        if suffix == ".html":
            target.write_text(_page(animation), encoding="utf-8")
        else:
            kind = PillowWriter if suffix == ".gif" else FFMpegWriter
            told = lambda k, frames: report(f"{said}: frame {k + 1} of {frames or 'many'} ...")  # noqa: E731
            animation.save(target, writer=kind(fps=frame_rate(animation)), dpi=dpi, progress_callback=told)
    return target


def _page(animation: Animation) -> str:
    with mpl.rc_context({"animation.embed_limit": _EMBED_LIMIT}):
        page = animation.to_jshtml(fps=frame_rate(animation))
    wanted, kept = sum(1 for _ in animation.new_frame_seq()), page.count('"data:image/png;base64,')
    if kept < wanted:
        raise ValueError(
            f"The page would exceed {_EMBED_LIMIT:g} MB: only {kept} of {wanted} frames fit. "
            "Use a lower fps or dpi, a higher speed, or save as .mp4."
        )
    return page


def _ffmpeg() -> str:
    """The path of ffmpeg: the system's, or else that of imageio-ffmpeg."""
    system = shutil.which(str(mpl.rcParams["animation.ffmpeg_path"]))
    if system is not None:
        return system
    try:
        import imageio_ffmpeg
    except ImportError:
        raise ImportError(
            "Saving an .mp4 needs ffmpeg, and there is none on the system. Run: pip install jaxmbd[animation]"
        ) from None
    return imageio_ffmpeg.get_ffmpeg_exe()
