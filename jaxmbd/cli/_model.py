"""The model of a command: a mechanism with its initial state, from the name of an example or a file."""

import math
import runpy
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import lazy_loader
from rich.console import Console
from typer import Argument, Option

from jaxmbd.errors import MechanismError, check_known
from jaxmbd.progress import reporting

if TYPE_CHECKING:
    from jaxmbd import examples
    from jaxmbd import io as files
    from jaxmbd.analyses import output_channels
    from jaxmbd.analyses.state import State
    from jaxmbd.examples import Example
    from jaxmbd.model.joint import joint as joint_types
    from jaxmbd.model.mechanism import mechanism as mechanisms
else:  # `--help` loads no library that computes
    examples = lazy_loader.load("jaxmbd.examples", suppress_warning=True)
    files = lazy_loader.load("jaxmbd.io", suppress_warning=True)
    output_channels = lazy_loader.load("jaxmbd.analyses.output_channels", suppress_warning=True)
    joint_types = lazy_loader.load("jaxmbd.model.joint.joint", suppress_warning=True)
    mechanisms = lazy_loader.load("jaxmbd.model.mechanism.mechanism", suppress_warning=True)

_MODEL = ".toml"  # the ending of model files
_FEW = 6  # the largest number of quantities that are shown by default


@dataclass(frozen=True)
class Model:
    """A mechanism with its initial state, and the output options of a command.

    `reads`: the names of the quantities to show; `asked`: those among them that the user named. `out`: the folder for
    files, None to write none. `start`: the state at the start, None if it has to be assembled.
    """

    name: str
    example: "Example"
    reads: tuple[str, ...]
    asked: tuple[str, ...]
    out: Path | None
    console: Console
    start: "State | None" = None

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

    def working(self, what: str) -> AbstractContextManager[Any]:
        """A context that shows a message on the terminal while a computation runs."""
        return reporting(True, f"{what} ...")

    def write(self, name: str, save: Callable[[Path], Any]) -> None:
        """Write a file by `save(path)` and report it, unless no files are to be written."""
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        save(self.out / name)
        self.console.print(f"wrote {self.out / name}", style="dim", highlight=False, soft_wrap=True)


def load(
    model: Annotated[
        str,
        Argument(help="An example (`jaxmbd examples` lists them), or a file: TOML, Python, MJCF, URDF, ASMT."),
    ],
    name: Annotated[str, Option(help="The variable that holds the mechanism, where a Python file makes several.")] = "",
    trust: Annotated[bool, Option("--trust", help="Import and run the Python code that a model file names.")] = False,
    coordinates: Annotated[str, Option(help="absolute or joint; the mechanism's own unless given.")] = "",
    cut: Annotated[list[str] | None, Option(help="A joint to cut, with joint coordinates. *")] = None,
    values: Annotated[
        list[str] | None, Option("--set", help="A coordinate at the start: crank.theta=0.3, or =30deg. *")
    ] = None,
    speed: Annotated[list[str] | None, Option(help="A speed at the start: crank.omega=2. *")] = None,
    guess: Annotated[list[str] | None, Option(help="A coordinate from which the search starts. *")] = None,
    read: Annotated[list[str] | None, Option(help="A quantity to show: slider.x, O.fx, energy. *")] = None,
    out: Annotated[Path | None, Option(help="The folder for files; out/MODEL unless given.")] = None,
    files: Annotated[bool, Option(help="Write tables and pictures to files.")] = True,
) -> Model:
    """Load the named mechanism with the options applied. Options marked * may be repeated.

    `--set` replaces all coordinates that an example prescribes initially, and `--speed` all of its speeds. With one of
    `--set`, `--speed` and `--guess` the state in a model file is only where the search starts.
    """
    example, start = _example_of(model, name, trust)
    title = Path(model).stem if _is_path(model) else example.name
    if coordinates or cut:
        if start is not None:
            raise MechanismError(
                f"{model!r} holds a state in the file's own coordinates, which --coordinates and --cut would change. "
                "Delete [state] from it, or give the options when the file is written (jaxmbd convert)."
            )
        example = example.with_coordinates(coordinates or "joint", cut or ())
    initial = {
        "fixed": _numbers("--set", values),
        "speeds": _numbers("--speed", speed),
        "guess": _numbers("--guess", guess),
    }
    if start is not None and any(initial.values()):
        near = zip(start.coordinate_names, start.q, strict=True)
        initial["guess"], start = {**dict(near), **initial["guess"]}, None
    example = replace(example, **{field: numbers for field, numbers in initial.items() if numbers})
    where = (Path("out") / title if out is None else out) if files else None
    return Model(title, example, _output_names(example, read), tuple(read or ()), where, Console(), start)


def _is_path(model: str) -> bool:
    return model.endswith((".py", _MODEL, *files.SUFFIXES)) or "/" in model or "\\" in model


def _example_of(model: str, name: str, trust: bool) -> "tuple[Example, State | None]":
    """The example of this name, or the model in a file of this name, with the state that a model file may hold."""
    if not _is_path(model):
        return examples.get(model), None
    path = Path(model)
    if path.suffix == _MODEL:
        mechanism, start = files.read_model(path, trust)
        return examples.Example(mechanism), start
    return _example_of_format(path) if path.suffix in files.SUFFIXES else _example_in_file(path, name), None


def _example_of_format(path: Path) -> "Example":
    """The model of another program, whose remarks go to the terminal."""
    read = files.read(path)
    for remark in read.remarks:
        Console(stderr=True).print(f"{path}: {remark}", style="dim", highlight=False, markup=False, soft_wrap=True)
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


def _numbers(option: str, texts: Iterable[str] | None) -> dict[str, float]:
    """Parse `["crank.theta=0.3", "O.angle=30deg"]` to numbers by name, angles in radians."""
    numbers = {}
    for text in texts or ():
        name, _, value = text.rpartition("=")
        try:
            number = float(value.removesuffix("deg"))
        except ValueError:
            number = None
        if number is None or not name:
            raise MechanismError(f"{option} takes a name and a number, crank.theta=0.3 or O.angle=30deg, got {text!r}.")
        numbers[name.strip()] = math.radians(number) if value.endswith("deg") else number
    return numbers


def _output_names(example: "Example", wanted: Iterable[str] | None) -> tuple[str, ...]:
    """The quantities to show: the user's, or the example's outputs, or else sensors, efforts and joint coordinates."""
    mechanism, known = example.mechanism, output_channels.channel_units(example.mechanism)
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
