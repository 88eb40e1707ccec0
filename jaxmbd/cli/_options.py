"""The arguments and options of the commands, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from jaxmbd.cli._completion import complete_data, complete_model

# The names of formulations, and those of their classes.
FORMULATIONS = {
    "stabilized": "Stabilized",
    "augmented": "Augmented",
    "partitioning": "CoordinatePartitioning",
    "projection": "Projection",
}
_CHANNEL = "CHANNEL:final, max, min, mean or rms"

# --- the model, for every command ------------------------------------------------------------------------------

ModelName = Annotated[
    str,
    Argument(
        help="An example (`jaxmbd examples` lists them), or a file: TOML, Python, MJCF, URDF, SDF, ASMT, "
        "Robotran, Adams.",
        autocompletion=complete_model,
    ),
]
Variable = Annotated[str, Option(help="The variable that holds the mechanism, where a Python file makes several.")]
Trust = Annotated[bool, Option("--trust", help="Import and run the Python code that a model file names.")]
Coordinates = Annotated[str, Option(help="absolute or joint; the mechanism's own unless given.")]
Cut = Annotated[list[str] | None, Option(help="A joint to cut, with joint coordinates (repeatable).")]
Values = Annotated[
    list[str] | None,
    Option(
        "--set",
        help="A number of a part, rod.mass=2, all that match a pattern, '*.mass=2', or a coordinate at the start, "
        "crank.theta=30deg (repeatable).",
    ),
]
Inputs = Annotated[
    list[str] | None,
    Option(
        "--input",
        help="What is added to an input: a number, O.angle=2, or a table with a column of its name, O.angle=log.csv, "
        "of an effort [N, N m], a voltage, what a driver prescribes, ... (repeatable).",
    ),
]
Speed = Annotated[list[str] | None, Option(help="A speed at the start: crank.omega=2 (repeatable).")]
Guess = Annotated[
    list[str] | None, Option(help="Where the search for a coordinate starts: crank.theta=30deg (repeatable).")
]
Read = Annotated[list[str] | None, Option(help="A quantity to show: slider.x, O.fx, energy (repeatable).")]
Out = Annotated[
    Path | None,
    Option(
        help="The folder for files, out/MODEL unless given; or one file, whose ending says its kind: film.mp4, run.nc."
    ),
]
Files = Annotated[bool, Option(help="Write tables and pictures to files.")]
Format = Annotated[Literal["png", "svg", "pdf"], Option(help="The format of pictures.")]
Show = Annotated[bool, Option("--show", help="Open the pictures that are written.")]

# --- files of other programs, with the meaning that these options have for `jaxmbd.io.read` ----------------------

_FOREIGN = "Files of other programs"
LengthUnit = Annotated[
    float | None,
    Option(
        help="ASMT: the length in metres that 1 means; FreeCAD writes millimetres, 0.001.", rich_help_panel=_FOREIGN
    ),
]
Keyframe = Annotated[
    str | None, Option(help="MJCF: the keyframe from which the model starts.", rich_help_panel=_FOREIGN)
]
Within = Annotated[
    Path | None,
    Option(
        help="The folder whose files may be read, included models and meshes; that of the file unless given.",
        rich_help_panel=_FOREIGN,
    ),
]
Loops = Annotated[
    Path | None,
    Option(
        help="URDF: a TOML file with the joints that close loops, robot.loops.toml unless given.",
        rich_help_panel=_FOREIGN,
    ),
]
Floating = Annotated[
    bool,
    Option("--floating", help="URDF: the base moves freely; it is the ground unless given.", rich_help_panel=_FOREIGN),
]

# --- motions ---------------------------------------------------------------------------------------------------

Until = Annotated[
    float | None, Option(help="The end of the motion, in seconds; the example's own, or 1 s, unless given.")
]
Rows = Annotated[int, Option(min=2, help="Number of times at which results are kept.")]
Formulation = Annotated[str, Option(help=f"How the constraints are kept: {', '.join(FORMULATIONS)}.")]
Accuracy = Annotated[Literal["standard", "high"], Option(help="The tolerance of the steps.")]
Solver = Annotated[
    Literal["stiff", "auto"] | None,
    Option(help="The implicit method, or the one that suits the motion; explicit by default."),
]
Film = Annotated[bool, Option(help="Write an animation.")]
Verbose = Annotated[bool, Option("--verbose", help="Say what ran the motion, and why.")]
Stable = Annotated[bool, Option("--stable", help="Descend to a stable equilibrium.")]
Push = Annotated[
    list[str] | None,
    Option("--push", "--force", help="Where a force acts: slider.x, O.angle, spring.tension (repeatable)."),
]
Reaction = Annotated[list[str] | None, Option(help="A joint whose reaction is drawn (repeatable).")]

# --- live ------------------------------------------------------------------------------------------------------

Slid = Annotated[
    list[str] | None,
    Option(
        "--parameter",
        help="A number that gets a slider, and its range, rod.length=0.1:0.4; by name or pattern alone, '*.length', "
        "from half to one and a half times its value (repeatable). Those that change positions unless given.",
    ),
]
Traced = Annotated[
    list[str] | None,
    Option(
        help="A point sensor, or a body for its centre, whose path is drawn (repeatable); all sensors unless given."
    ),
]
Port = Annotated[int, Option(min=0, max=65535, help="The port on this computer; one that is free unless given.")]
Browser = Annotated[bool, Option(help="Open the browser; the address is printed in any case.")]

# --- files -----------------------------------------------------------------------------------------------------

Page = Annotated[
    Path | None, Option("--out", help="The page to write, page.html, or a folder; shown in the browser unless given.")
]
Text = Annotated[
    Path | None,
    Option(
        "--out",
        help="The file to write, ending .txt, .tex, .py or .c by its format, or a folder; printed unless given.",
    ),
]
Target = Annotated[
    Path,
    Argument(
        help="The file to write: a model file .toml; with `convert` also an FMU .fmu, C .c with a header, MJCF .xml, "
        "URDF .urdf."
    ),
]
Kept = Annotated[
    list[str] | None,
    Option(
        "--parameter",
        help="FMU, C: a number that stays a parameter, rod.mass, or all that match a pattern, '*.mass' (repeatable).",
    ),
]
Fmi = Annotated[Literal["3.0", "2.0"], Option(help="FMU: the version of the standard.")]
Step = Annotated[float | None, Option(help="FMU, C: the longest step, in seconds; chosen unless given.")]
Spatial = Annotated[bool, Option("--spatial", help="A mechanism in space, in place of one in the plane.")]
Replace = Annotated[bool, Option("--overwrite", help="Replace a model file that exists.")]
Labels = Annotated[bool, Option(help="Write the names of bodies and joints.")]
Elevation = Annotated[float | None, Option(help="In space: the view's elevation above the xy plane, in degrees.")]
Azimuth = Annotated[float | None, Option(help="In space: the view's azimuth from the x axis, in degrees.")]
Language = Annotated[
    Literal["text", "latex", "sympy", "numpy", "c"],
    Option("--format", help="Numbers at the start; formulas in LaTeX or SymPy; source text in NumPy or C."),
]
Piece = Annotated[
    list[str] | None,
    Option(
        help="A matrix or column: xM, vF, Psi_p, Phi, gamma, h, ..., as text also M_hat; some unless given "
        "(repeatable)."
    ),
]
Symbol = Annotated[list[str] | None, Option(help="A number of a part that stays a symbol: rod.mass=m (repeatable).")]

# --- many motions ----------------------------------------------------------------------------------------------

Data = Annotated[
    list[Path],
    Argument(
        help="CSV: a column time, and columns named like quantities, 'rod.theta [rad]'. Several: one motion each.",
        autocompletion=complete_data,
    ),
]
Parameters = Annotated[
    list[str] | None,
    Option(
        "--parameter",
        help="A number to be estimated and its bounds, rod.mass=0.5:2, or all that match a pattern, '*.mass=0.5:2', "
        "each for itself (repeatable).",
    ),
]
Estimate = Annotated[
    list[str] | None, Option(help="A coordinate or speed at the start that is estimated, too: rod.theta (repeatable).")
]
Sigma = Annotated[
    list[str] | None,
    Option(help="The noise of a quantity, in SI units or with deg: O.angle=0.5deg, tip=0.01 (repeatable)."),
]
Starts = Annotated[int, Option(min=1, help="Number of starts: the model's own values, then random ones in the bounds.")]
Over = Annotated[
    list[str] | None,
    Option(
        help="A number, or a coordinate or speed at the start, and its values: rod.mass=0.5:1.5:20, a grid, or "
        "rod.mass=0.5:1.5:64@sobol (@lhs), drawn together with the others of its kind (repeatable)."
    ),
]
Outputs = Annotated[list[str] | None, Option("--output", help=f"What is kept of each motion: {_CHANNEL} (repeatable).")]
Plot = Annotated[
    bool,
    Option(
        "--plot",
        help="Draw the results: outputs over one or two numbers or across parallel axes, their distribution with all "
        "verdicts, and the front of the aims.",
    ),
]
Small = Annotated[
    list[str] | None,
    Option("--minimize", help=f"An output that is better the smaller it is, for the front: {_CHANNEL} (repeatable)."),
]
Large = Annotated[
    list[str] | None,
    Option("--maximize", help=f"An output that is better the larger it is, for the front: {_CHANNEL} (repeatable)."),
]
PlotDesign = Annotated[
    bool, Option("--plot", help="Draw the course of the search, and the motion before and after it.")
]
Overwrite = Annotated[bool, Option("--overwrite", help="Begin afresh, in place of continuing a store that exists.")]
Variables = Annotated[
    list[str] | None,
    Option(
        "--variable",
        help="A number to be chosen and its bounds, spring.stiffness=1:100, or all that match a pattern, "
        "'*.stiffness=1:100', each for itself (repeatable).",
    ),
]
Minimize = Annotated[str | None, Option(help=f"What is to be small: {_CHANNEL}.")]
Maximize = Annotated[str | None, Option(help=f"What is to be large, in place of --minimize: {_CHANNEL}.")]
AtMost = Annotated[list[str] | None, Option(help="An upper limit: tip.y:max=0.3 (repeatable).")]
AtLeast = Annotated[list[str] | None, Option(help="A lower limit: tip.y:min=-0.2 (repeatable).")]
