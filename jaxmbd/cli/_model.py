"""The model of a command: a mechanism with its initial state, from the name of an example or a file."""

import runpy
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import typer
from rich.console import Console

import jaxmbd as mbd
from jaxmbd.cli import _options as options
from jaxmbd.cli import _values as values_of
from jaxmbd.cli._completion import ENDINGS
from jaxmbd.cli._outputs import FILMS, PICTURES, ending_of, made_folder
from jaxmbd.errors import MechanismError, check_known, printable
from jaxmbd.progress import reporting

if TYPE_CHECKING:
    from jaxmbd import examples
    from jaxmbd import io as files
    from jaxmbd.cli import _data as tables
    from jaxmbd.cli import _start as beginning
    from jaxmbd.examples import Example
    from jaxmbd.model.joint import joint as joint_types
    from jaxmbd.model.mechanism import mechanism as mechanisms
    from jaxmbd.model.mechanism import quantities
    from jaxmbd.parameters import numbers
    from jaxmbd.state.state import State
else:  # `--help` loads no library that computes
    examples = lazy_loader.load("jaxmbd.examples", suppress_warning=True)
    files = lazy_loader.load("jaxmbd.io", suppress_warning=True)
    tables = lazy_loader.load("jaxmbd.cli._data", suppress_warning=True)
    quantities = lazy_loader.load("jaxmbd.model.mechanism.quantities", suppress_warning=True)
    beginning = lazy_loader.load("jaxmbd.cli._start", suppress_warning=True)
    joint_types = lazy_loader.load("jaxmbd.model.joint.joint", suppress_warning=True)
    mechanisms = lazy_loader.load("jaxmbd.model.mechanism.mechanism", suppress_warning=True)
    numbers = lazy_loader.load("jaxmbd.parameters.numbers", suppress_warning=True)

_MODEL = ".toml"  # the ending of model files
_FEW = 6  # the largest number of quantities that are shown by default


@dataclass(frozen=True)
class Model:
    """A mechanism with its initial state, and the output options of a command.

    - `reads`: the names of the quantities to show; `asked`: those among them that the user named;
    - `out`: the folder for files, or the one file that is wanted, with its `ending`; None to write none;
    - `start`: the state at the start, None if it has to be assembled; `path`: the file that the model comes from;
    - `format`: the ending of pictures; `show`: whether they are opened;
    - `written`: the files that the command has made so far.
    """

    name: str
    example: "Example"
    reads: tuple[str, ...]
    asked: tuple[str, ...]
    out: Path | None
    console: Console
    start: "State | None" = None
    path: Path | None = None
    format: str = "png"
    show: bool = False
    ending: str = ""
    written: list[Path] = field(default_factory=list)

    @property
    def mechanism(self) -> "mechanisms.Mechanism":
        """The mechanism, in the coordinates that the options select."""
        return self.example.mechanism

    def assembled(self) -> "State":
        """The initial state, assembled unless a file holds it."""
        if self.start is not None:
            return self.start
        with self.working("compiling and assembling"):
            return self.example.state()

    def working(self, what: str) -> AbstractContextManager[object]:
        """A context that shows a message on the terminal while a computation runs."""
        return reporting(True, f"{what} ...")

    def to(self, out: Path) -> "Model":
        """The model with another folder or file."""
        return replace(self, out=out, ending=ending_of(out))

    def place(self, name: str) -> Path | None:
        """The path of a file, None if it is not wanted."""
        ending = Path(name).suffix
        if self.out is None or self.ending not in ("", ending):
            return None
        path = self.out if self.ending else self.out / name
        if path in self.written:
            raise MechanismError(f"There are several {ending} files: --out must name a folder, got {str(path)!r}.")
        self.written.append(made_folder(path))
        return path

    def picture(self, stem: str) -> str:
        """The name of a picture."""
        return stem + (self.ending if self.ending in PICTURES else f".{self.format}")

    def film(self, stem: str) -> str:
        """The name of an animation."""
        return stem + (self.ending if self.ending in FILMS else FILMS[0])

    def write(self, name: str, save: Callable[[Path], object]) -> None:
        """Write a file by `save(path)` and report it, if it is wanted."""
        path = self.place(name)
        if path is not None:
            save(path)
            self.report(path)

    def report(self, path: Path) -> None:
        """Say that a file has been written, and open it if it is a picture that the user wants to see."""
        self.console.print(printable(f"wrote {path}"), style="dim", highlight=False, soft_wrap=True)
        if self.show and path.suffix.lower() in (*PICTURES, *FILMS):
            typer.launch(str(path))

    def check_written(self) -> None:
        """Raise if the one file that was wanted has not been written."""
        if self.ending and not self.written:
            raise MechanismError(f"--out {str(self.out)!r}: with these options and this model there is no such file.")


def load(
    model: options.ModelName,
    name: options.Variable = "",
    trust: options.Trust = False,
    coordinates: options.Coordinates = "",
    cut: options.Cut = None,
    values: options.Values = None,
    input: options.Inputs = None,
    speed: options.Speed = None,
    guess: options.Guess = None,
    read: options.Read = None,
    out: options.Out = None,
    files: options.Files = True,
    format: options.Format = "png",
    show: options.Show = False,
    length_unit: options.LengthUnit = None,
    keyframe: options.Keyframe = None,
    within: options.Within = None,
    loops: options.Loops = None,
    floating: options.Floating = False,
) -> Model:
    """Load the named mechanism with the options applied.

    `--set` changes numbers of parts; coordinates in it replace all those that an example prescribes initially, and
    `--speed` replaces all of its speeds. With one of these coordinates, `--speed` and `--guess` the state in a model
    file is only where the search starts.
    """
    foreign = {"length_unit": length_unit, "keyframe": keyframe, "within": within, "loops": loops}
    foreign["floating"] = floating or None
    foreign = {option: value for option, value in foreign.items() if value is not None}
    example, start = _example_of(model, name, trust, foreign)
    title = Path(model).stem if _is_path(model) else example.name
    example, start, fixed = _with_numbers(example, start, values_of.numbers("--set", values))
    if coordinates or cut:
        if start is not None:
            raise MechanismError(
                f"{model!r} holds a state in the file's own coordinates, which --coordinates and --cut would change. "
                "Delete [state] from it, or give the options when the file is written (jaxmbd convert)."
            )
        example = example.with_coordinates(coordinates or "joint", cut or ())
    example = replace(example, mechanism=_with_inputs(example.mechanism, values_of.signals("--input", input)))
    initial = {
        "fixed": fixed,
        "speeds": values_of.numbers("--speed", speed),
        "guess": values_of.numbers("--guess", guess),
    }
    if start is not None and any(initial.values()):
        near = zip(start.layout.q.names, start.q, strict=True)
        initial["guess"], start = {**dict(near), **initial["guess"]}, None
    example = replace(example, **{field: given for field, given in initial.items() if given})
    where = (Path("out") / title if out is None else out) if files else None
    reads = _output_names(example, read)
    path = Path(model) if _is_path(model) else None
    return Model(title, example, reads, tuple(read or ()), where, Console(), start, path, format, show, ending_of(out))


def _with_numbers(
    example: "Example", start: "State | None", values: dict[str, float]
) -> "tuple[Example, State | None, dict[str, float]]":
    """The model with other numbers of its parts, the state that it still has, and the coordinates among the values."""
    given, fixed = _divided(example.mechanism, values)
    if not given:
        return example, start, fixed
    if start is not None:  # with other numbers its joints need not be closed
        example = replace(example, **beginning.released(example.mechanism, start))
    return replace(example, mechanism=numbers.with_numbers(example.mechanism, given)), None, fixed


def _with_inputs(mechanism: "mechanisms.Mechanism", given: dict[str, float | Path]) -> "mechanisms.Mechanism":
    """The mechanism with signals added to its inputs: numbers, and columns of tables over time."""
    if not given:
        return mechanism
    known, drivers = mbd.inputs(mechanism), {driver.name for driver in mechanism.drivers}
    signals: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Path):
            check_known("input", [name], known)
            samples = tables.read_signal(value, name, known[name])
            # What a driver prescribes must have rates, which a table has not.
            function = mbd.SmoothingSpline if name.split(".")[0] in drivers else mbd.Table
            signals[name] = function(*samples)
        else:
            signals[name] = value
    return mbd.with_inputs(mechanism, signals)


def _divided(mechanism: "mechanisms.Mechanism", given: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """The values of numbers of parts, and those of coordinates at the start."""
    if not given:
        return {}, {}
    known, coordinates = numbers.numbers_of(mechanism), beginning.coordinate_names(mechanism)
    named = [name for name in given if not numbers.is_pattern(name)]
    check_known("coordinate or number of a part", named, (*coordinates, *known))
    return (
        {name: value for name, value in given.items() if name not in coordinates},
        {name: value for name, value in given.items() if name in coordinates},
    )


def _is_path(model: str) -> bool:
    return model.endswith(ENDINGS) or "/" in model or "\\" in model


def _example_of(model: str, name: str, trust: bool, foreign: dict[str, Any]) -> "tuple[Example, State | None]":
    """The example of this name, or the model in a file of this name, with the state that a model file may hold.

    `foreign`: the options of `jaxmbd.io.read` that are given.
    """
    path = Path(model)
    is_foreign = _is_path(model) and path.suffix in files.SUFFIXES
    if foreign and not is_foreign:
        named = ", ".join(f"--{option.replace('_', '-')}" for option in foreign)
        raise MechanismError(f"{named}: for {', '.join(files.SUFFIXES)} files of other programs only, got {model!r}.")
    if not _is_path(model):
        return examples.get(model), None
    if is_foreign:
        return _example_of_format(path, foreign), None
    if path.suffix == _MODEL:
        mechanism, start = files.read_model(path, trust)
        return examples.Example(mechanism), start
    return _example_in_file(path, name), None


def remark(text: str) -> None:
    """Say on the terminal what is no result."""
    Console(stderr=True).print(printable(text), style="dim", highlight=False, markup=False, soft_wrap=True)


def _example_of_format(path: Path, foreign: dict[str, Any]) -> "Example":
    """The model of another program, whose remarks go to the terminal."""
    read = files.read(path, **foreign)
    for text in read.remark_lines:
        remark(f"{path}: {text}")
    speeds = dict(zip(read.mechanism.speed_names, read.state.v, strict=True)) if read.speeds else {}
    duration = 1.0 if read.duration is None else read.duration
    return examples.Example(read.mechanism, guess=read.guess, speeds=speeds, duration=duration)


def _example_in_file(path: Path, name: str) -> "Example":
    """The `Example` in a variable of a Python file, or one of its `Mechanism`, which starts from its bodies' poses."""
    if not path.is_file():
        raise MechanismError(f"There is no file {str(path)!r}.")
    models = {
        key: value for key, value in _run(path).items() if isinstance(value, mechanisms.Mechanism | examples.Example)
    }
    if not models:
        raise MechanismError(f"{str(path)!r} makes no Mechanism at its top level; assign one to a variable.")
    if name and name not in models:
        raise MechanismError(f"{str(path)!r} makes no Mechanism {name!r}; it makes {', '.join(models)}.")
    if not name and len({id(value) for value in models.values()}) > 1:
        raise MechanismError(f"{str(path)!r} makes several mechanisms; choose with --name: {', '.join(models)}.")
    model = models[name] if name else next(iter(models.values()))
    return model if isinstance(model, examples.Example) else examples.Example(model)


def _run(path: Path) -> dict[str, Any]:
    """Run a Python file and return its variables; an exception is raised again with the line where it occurred."""
    try:
        return runpy.run_path(str(path))
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"line {lines[-1]}" if lines else f"line {getattr(error, 'lineno', '?')}"
        raise MechanismError(f"{str(path)!r} fails in {place}: {type(error).__name__}: {error}") from error


def _output_names(example: "Example", wanted: Iterable[str] | None) -> tuple[str, ...]:
    """The quantities to show: the user's, or the example's outputs, or else sensors, efforts and joint coordinates."""
    mechanism, known = example.mechanism, quantities.channel_units(example.mechanism)
    check_known("quantity", wanted or (), known)
    if wanted or example.outputs:
        return tuple(wanted or example.outputs)
    sensors = [sensor.name for sensor in mechanism.sensors]
    efforts = [f"{driver.name}.effort" for driver in mechanism.drivers]
    joints = [
        f"{joint.name}.{c}"
        for joint in mechanism.joints
        if isinstance(joint, joint_types.AbstractJoint)
        for c in joint.coordinate_names
    ]
    return (*sensors, *efforts, *(joints or mechanism.coordinate_names))[:_FEW]
