"""`save_animation`: animations as a web page, GIF or MP4 file."""

import shutil
from os import PathLike
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.animation import Animation, FFMpegWriter, PillowWriter

_DPI = 120
_EMBED_LIMIT = 200.0  # size limit of a web page [MB]; matplotlib's default 20 drops frames after some ten seconds
SUFFIXES = (".html", ".gif", ".mp4")


def save_animation(animation: Animation, path: str | PathLike[str], *, dpi: float | int = _DPI) -> Path:
    """Write an animation to a file, by its suffix.

    `.html`: a self-contained page with buttons; `.gif`; `.mp4`, with the system's ffmpeg or that of imageio-ffmpeg
    (`pip install jaxmbd[animation]`).

    **Arguments:** `animation` from `animate`; `path`; `dpi`, dots per inch.

    **Returns:** the path.

    **Raises:** `ValueError` for another suffix, or a page that is too large; `ImportError` if there is no ffmpeg.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"Cannot save an animation as {target.name!r}: its suffix must be one of {', '.join(SUFFIXES)}."
        )
    settings: Any = {"savefig.dpi": dpi, "figure.dpi": dpi}
    if suffix == ".mp4":
        settings["animation.ffmpeg_path"] = _ffmpeg()
    with mpl.rc_context(settings):
        if suffix == ".html":
            target.write_text(_page(animation), encoding="utf-8")
        elif suffix == ".gif":
            animation.save(target, writer=PillowWriter(fps=_rate(animation)), dpi=dpi)
        else:
            animation.save(target, writer=FFMpegWriter(fps=_rate(animation)), dpi=dpi)
    return target


def _page(animation: Animation) -> str:
    with mpl.rc_context({"animation.embed_limit": _EMBED_LIMIT}):
        page = animation.to_jshtml(fps=_rate(animation))
    wanted, kept = sum(1 for _ in animation.new_frame_seq()), page.count('"data:image/png;base64,')
    if kept < wanted:
        raise ValueError(
            f"The page would exceed {_EMBED_LIMIT:g} MB: only {kept} of {wanted} frames fit. "
            "Use a lower fps or dpi, a higher speed, or save as .mp4."
        )
    return page


def _rate(animation: Animation) -> Any:
    """Frames per second, as set in `animate` (matplotlib stores the interval [ms])."""
    return 1000 / animation._interval  # pyright: ignore[reportAttributeAccessIssue]


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
