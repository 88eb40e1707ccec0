"""What `--out` names: a folder, or one file of the kind that its ending says."""

from collections.abc import Collection
from pathlib import Path

from jaxmbd.errors import MechanismError

PICTURES, FILMS = (".png", ".svg", ".pdf"), (".gif", ".mp4")
_STORE = ".zarr"  # the ending of folders that are one result


def ending_of(out: Path | None) -> str:
    """The ending of the one file that a path names; empty if it has none, or is a folder that exists."""
    ending = "" if out is None else out.suffix.lower()
    return "" if ending != _STORE and out is not None and out.is_dir() else ending


def check_out(out: Path | None, endings: Collection[str]) -> None:
    """Raise if a path names a file of a kind that a command with these endings does not write, or no folder."""
    ending = ending_of(out)
    if ending and ending not in endings:
        known = f", or one file that ends with {', '.join(endings)}" if endings else ""
        raise MechanismError(
            f"--out {str(out)!r}: this command writes no {ending} file. Name a folder (one with a dot in its name has "
            f"to exist){known}."
        )
    if out is not None and not ending and out.is_file():
        raise MechanismError(f"--out {str(out)!r} is a file without an ending. Name a folder, or another file.")


def check_not_read(out: Path | None, model: str) -> None:
    """Raise if a path names the file that the model is read from, which a result would replace."""
    if out is not None and out.is_file() and Path(model).is_file() and out.samefile(model):
        raise MechanismError(f"--out {str(out)!r} is the model itself, which would be lost. Name another file.")


def check_new(path: Path, overwrite: bool) -> None:
    """Raise if a model file exists, which its user may have changed, unless it is to be replaced."""
    if path.exists() and not overwrite:
        raise MechanismError(f"{str(path)!r} exists. Give another name, or --overwrite to replace it.")


def made_folder(path: Path) -> Path:
    """Make the folder of a file, and return the file's path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MechanismError(f"The folder {str(path.parent)!r} cannot be made: {error.strerror}.") from None
    return path
