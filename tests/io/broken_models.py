"""Broken model files, each with the line of the fault and what the error says: the reason, and the mend."""

from collections.abc import Sequence
from dataclasses import dataclass

MODEL = """\
format = "jaxmbd-model/1"
space = "planar"
coordinates = "absolute"

[markers]
pin = { body = "ground", position = [0.0, 0.0] }

[bodies.crank]
mass = 1.0
inertia = 0.1
pose = [0.0, 0.5, 0.0]

[joints.O]
type = "Revolute"
a = "pin"
b = { body = "crank", position = [-0.5, 0.0], angle = 0.0 }

[forces.spring]
type = "JointSpringDamper"
coordinate = "O.angle"
stiffness = 3.0

[drivers.motor]
coordinate = "O.angle"
motion = 0.5

[sensors.tip]
type = "Point"
at = { body = "crank", position = [0.5, 0.0] }

[state]
t = 0.0
coordinates = { "crank.x" = 0.0, "crank.y" = 0.5, "crank.theta" = 0.0 }
speeds = { "crank.vx" = 0.0, "crank.vy" = 0.0, "crank.omega" = 0.0 }
"""


@dataclass(frozen=True)
class Broken:
    """A change of the model, from `old` to `new`; the line that the error names, None for none; and what it says."""

    old: str
    new: str
    line: int | None
    said: Sequence[str]

    @property
    def content(self) -> bytes:
        """The file."""
        assert MODEL.count(self.old) >= 1, self.old
        return MODEL.replace(self.old, self.new, 1).encode("utf-8", "surrogateescape")


def changed(old: str, new: str, line: int | None, *said: str) -> Broken:
    return Broken(old, new, line, said)


MASS, MOTION, FORCE = "mass = 1.0", "motion = 0.5", "stiffness = 3.0"
TOO_DEEP = "nested more than 32 deep"

NO_TOML = {
    "empty": Broken(MODEL, "", None, ["no model file", 'first line should be format = "jaxmbd-model/1"']),
    "truncated in a text": Broken(MODEL, MODEL[:40], 2, ["no TOML"]),
    "truncated in a list": Broken(MODEL, MODEL[: MODEL.index("0.5, 0.0]\n")], 11, ["no TOML"]),
    "no value": changed(MASS, "mass =", 9, "no TOML", "https://toml.io"),
    "two equal keys": changed(MASS, f"{MASS}\n{MASS}", 10, "no TOML", "Cannot overwrite a value"),
    "two equal tables": changed("[sensors.tip]", "[bodies.crank]", 27, "no TOML", "declare", "twice"),
    "no UTF-8": changed("[sensors.tip]", "[sensors.\udcfftip]", 27, "no UTF-8", "Save the file as UTF-8"),
    "UTF-16": Broken(MODEL, "\udcff\udcfef\0o\0", 1, ["no UTF-8"]),
    "Python": changed(MASS, "mass = float('1')", 9, "no TOML"),
    "JSON": Broken(MODEL, '{"format": "jaxmbd-model/1"}', 1, ["no TOML"]),
    "digits without end": changed("1.0", "1" * 5000, 9, "too many digits", "4300"),
    "lists without end": changed("1.0", "[" * 5000 + "]" * 5000, 9, TOO_DEEP),
    "lists too deep": changed("1.0", "[" * 40 + "]" * 40, 9, TOO_DEEP),
    "tables too deep": changed(MASS, ".".join("abcdefgh" * 5) + " = 1", 9, TOO_DEEP),
    "a key without end": changed(MASS, "a . 'b'." * 100_000 + "c = 1", 9, TOO_DEEP),
}

WRONG_VALUES = {
    "version": changed("model/1", "model/2", 1, "format is 'jaxmbd-model/2'", "reads 'jaxmbd-model/1'"),
    "no format": changed('format = "jaxmbd-model/1"', "", None, "has no format"),
    "no space": changed('space = "planar"', "", None, "space is missing, one of planar, spatial"),
    "space": changed('"planar"', '"plane"', 2, "space must be one of 'planar', 'spatial', got 'plane'"),
    "coordinates": changed('"absolute"', "1", 3, "coordinates must be one of 'absolute', 'joint', got 1"),
    "floats": changed("[markers]", 'floats = "float8"\n[markers]', 5, "floats must be one of", "'float8'"),
    "single precision with defaults": changed(
        "[markers]", 'floats = "float32"\n[markers]', 7, "angle must be given, since its default would be float64"
    ),
    "entry": changed("[markers]", "gravity = 9.81\n[markers]", 5, "no entry of a model file named 'gravity'"),
    "bodies is a number": changed("[bodies.crank]", "[[bodies]]", 8, "bodies: must be a table"),
    "a part is a number": changed("[sensors.tip]", "[sensors]\ntip2 = 3\n[sensors.tip]", 28, "sensors.tip2", "got 3"),
    "mass is text": changed("1.0", '"heavy"', 9, "bodies.crank.mass: must be a number", "got 'heavy'"),
    "mass is a flag": changed("1.0", "true", 9, "bodies.crank.mass: must be a number", "got true"),
    "mass is a date": changed("1.0", "2020-01-01", 9, "bodies.crank.mass: must be a number"),
    "mass is negative": changed("1.0", "-1.0", 9, "Body 'crank': mass must be positive [kg]", "got -1"),
    "mass is NaN": changed("1.0", "nan", 9, "Body 'crank': mass must be positive", "got nan"),
    "mass overflows": changed("1.0", "1e999", 9, "Body 'crank': mass must be positive", "finite", "got inf"),
    "a whole number overflows": changed("1.0", "1" + 400 * "0", 9, "a number is too large", "float64"),
    "pose is short": changed("[0.0, 0.5, 0.0]", "[0.0, 0.5]", 11, "Body 'crank': pose must have shape (3,)", "(2,)"),
    "pose is ragged": changed("[0.0, 0.5, 0.0]", "[[0.0], [0.5, 1]]", 11, "bodies.crank.pose", "differ in length"),
    "pose has text": changed("0.5, 0.0]\n\n", '"a", 0.0]\n\n', 11, "bodies.crank.pose.1: must be a number", "'a'"),
    "no mass": changed(MASS, "", 8, "Body 'crank' has no 'mass', which is a number"),
    "misspelt": changed("inertia =", "inertai =", 10, "entry of a Body named 'inertai'. Did you mean 'inertia'?"),
    "name": changed(MASS, f'{MASS}\nname = "rod"', 10, "There is no entry of a Body named 'name'"),
    "name with a dot": changed("[bodies.crank]", '[bodies."a.b"]', 8, "without a dot, got 'a.b'"),
    "ground": changed(
        "[bodies.crank]", f"[bodies.ground]\n{MASS}\ninertia = 1.0\n[bodies.crank]", 8, "taken by the ground"
    ),
    "type": changed('"Revolute"', '"Revolut"', 14, "There is no class named 'Revolut'. Did you mean 'Revolute'?"),
    "type is a number": changed('"Revolute"', "3", 14, "A class is named by a string, got 3"),
    "no type": changed('type = "Revolute"', "", 13, "joints.O: the type is missing, one of"),
    "a force among joints": changed('"Revolute"', '"Gravity"', 14, "There is no class named 'Gravity'", "'Revolute'"),
    "of the other space": changed('"Revolute"', '"Spherical"', 14, "There is no class named 'Spherical'"),
    "flag": changed("[markers]", 'floating = "yes"\n[markers]', 5, "floating: must be true or false, got 'yes'"),
    "piece": changed(
        MOTION, 'motion = { type = "Piecewise", times = [1], pieces = 3.0 }', 25, "motion.pieces", "a list"
    ),
    "order": changed(
        MOTION,
        'motion = { type = "Table", times = [1], values = [1], order = 1.5 }',
        25,
        "must be a whole number",
        "1.5",
    ),
    "table": changed(MOTION, 'motion = { type = "Table", times = [2, 1], values = [0, 0] }', 25, "times must increase"),
    "a motion that jumps": changed(MOTION, 'motion = { type = "Table", times = [1], values = [0] }', 23, "cannot jump"),
    "spline": changed(
        MOTION,
        'motion = { type = "SmoothingSpline", breaks = [0, 1], coefficients = [[1, 2, 3]], smoothing = 0.0 }',
        25,
        "SmoothingSpline: coefficients",
        "shape (2, 6)",
        "(1, 3)",
    ),
    "spline of no numbers": changed(
        MOTION,
        'motion = { type = "SmoothingSpline", breaks = [0], coefficients = [[1, 2, nan, 4, 5, 6]], smoothing = 0.0 }',
        25,
        "SmoothingSpline: coefficients[0][2] must be finite, got nan",
    ),
    "text that is an array": changed(
        'coordinate = "O.angle"\nm',
        'coordinate = { type = "array", dtype = "int8", values = 1 }\nm',
        24,
        "must be text",
    ),
    "none of a type": changed(MOTION, 'motion = { type = "float" }', 25, "a value of type 'float' has no 'value'"),
    "array of a type": changed(
        MOTION, 'motion = { type = "array", dtype = "float7", values = 1 }', 25, "type of numbers named 'float7'"
    ),
    "array of a shape": changed(
        MOTION,
        'motion = { type = "array", dtype = "int8", shape = [3], values = [1] }',
        25,
        "do not have the shape [3]",
    ),
    "scalar that is a list": changed(
        MOTION, 'motion = { type = "scalar", dtype = "int8", value = [1] }', 25, "must be one number, got [1]"
    ),
    "array of weak numbers": changed(
        MOTION, 'motion = { type = "array", dtype = "int8", weak = true, values = 1 }', 25, "of a weak type", "int8"
    ),
    "array of small numbers": changed(
        MOTION, 'motion = { type = "array", dtype = "int8", values = 300 }', 25, "a number is too large", "int8"
    ),
    "array of short numbers": changed(
        MOTION, 'motion = { type = "array", dtype = "float32", values = 1e300 }', 25, "a number is too large", "float32"
    ),
    "array of whole numbers": changed(
        MOTION, 'motion = { type = "array", dtype = "int8", values = 0.5 }', 25, "must be a whole number", "got 0.5"
    ),
}

WRONG_REFERENCES = {
    "body": changed('"crank", position = [-', '"crnk", position = [-', 16, "named 'crnk'. Did you mean 'crank'?"),
    "marker": changed('a = "pin"', 'a = "pen"', 15, "no marker named 'pen'. Did you mean 'pin'?", "[markers]"),
    "marker of a body": changed('"ground"', '"grund"', 6, "markers.pin.body: There is no body named 'grund'"),
    "a marker that is itself": changed(
        'pin = { body = "ground", position = [0.0, 0.0] }', 'pin = "pin"', 6, "markers.pin: must be a table"
    ),
    "marker is a number": changed('a = "pin"', "a = 3", 15, "joints.O.a: must be a marker", "got 3"),
    "marker that is no marker": changed('a = "pin"', 'a = { type = "Body", mass = 1 }', 15, "no class named 'Body'"),
    "body of a marker": changed('{ body = "ground"', "{ body = 3", 6, "markers.pin.body: must be text, got 3"),
    "a joint of one body": changed(
        'body = "ground"', 'body = "crank"', 13, "Revolute 'O' connects body 'crank' with itself"
    ),
    "joint": changed(
        'coordinate = "O.angle"\nm', 'coordinate = "P.angle"\nm', 23, "no joint or body named 'P'", "'motor'"
    ),
    "coordinate": changed(
        '"O.angle"\nstiff', '"O.angel"\nstiff', 18, "JointSpringDamper 'spring'", "Did you mean 'angle'?"
    ),
    "coordinate without a dot": changed(
        '"O.angle"\nstiff', '"O"\nstiff', 20, "must be written 'joint.angle'", "got 'O'"
    ),
    "two parts of one name": changed("[sensors.tip]", "[sensors.O]", 13, "Two parts are named 'O'"),
    "cut": changed("[markers]", 'cuts = ["O"]\n[markers]', 5, "only means something with coordinates='joint'"),
    "cuts": changed("[markers]", 'cuts = "O"\n[markers]', 5, "cuts: must be a list of names of joints, got 'O'"),
    "cut that is none": changed('"absolute"', '"joint"\ncuts = ["P"]', 4, "no joint to cut named 'P'"),
    "tree": changed('"absolute"', '"joint"\ntree = ["P"]', 4, "no joint of the tree named 'P'"),
    "tree of one joint twice": changed(
        '"absolute"', '"joint"\ntree = ["O", "O"]', 4, "tree must name the joints of a spanning tree", "['O']"
    ),
    "not connected": changed('body = "ground"', 'body = "rod"', 6, "There is no body named 'rod'"),
    "no bodies": Broken(MODEL, MODEL[: MODEL.index("[markers]")], None, ["needs at least one body"]),
    "state lacks": changed('"crank.x" = 0.0, ', "", 33, "the state lacks 'crank.x'"),
    "state of another": changed('"crank.vx"', '"crank.vz"', 34, "named 'crank.vz'. Did you mean 'crank."),
    "a marker that no part uses": changed(
        "[bodies.crank]", "[markers.end]\nbody = 'x'\n[bodies.crank]", 9, "body named 'x'"
    ),
    "rank of a state": changed("t = 0.0", "t = 0.0\nrank = 7", 33, "state.rank: must be a whole number from 0 to 3"),
    "state is NaN": changed('"crank.vx" = 0.0', '"crank.vx" = nan', 34, "speeds.crank.vx: must be a finite number"),
}

PATH = "tests.io.hostile:run"
HOSTILE = {
    "function": changed(MOTION, f'motion = {{ type = "function", path = "{PATH}" }}', 25, PATH, "trust=True"),
    "system": changed(MOTION, 'motion = { type = "function", path = "os:system" }', 25, "'os:system'", "trust=True"),
    "class": changed('"Revolute"', '"tests.io.hostile:Part"', 14, "'tests.io.hostile:Part'", "--trust"),
    "marker": changed('a = "pin"', f'a = {{ type = "{PATH}" }}', 15, PATH, "trust=True"),
    "parameter": changed(MOTION, f'motion = {{ type = "tuple", items = [{{ type = "{PATH}" }}] }}', 25, PATH, "trust"),
    "no path": changed(MOTION, 'motion = { type = "function", path = "os.system" }', 25, "'package.module:name'"),
    "code": changed(MOTION, 'motion = { type = "function", path = "os:system(1)" }', 25, "'package.module:name'"),
    "file": changed(MOTION, 'motion = { type = "function", path = "../x.py:f" }', 25, "'package.module:name'"),
    "path is a number": changed(
        MOTION, 'motion = { type = "function", path = 3 }', 25, "'package.module:name'", "got 3"
    ),
    "private name": changed(MOTION, 'motion = { type = "function", path = "jaxmbd.cli:app" }', 25, "trust=True"),
}

UNTRUSTED = {**NO_TOML, **WRONG_VALUES, **WRONG_REFERENCES, **HOSTILE}

# Files that are trusted, and name what is not there or not fit.
TRUSTED = {
    "no module": changed(MOTION, 'motion = { type = "function", path = "tests.nowhere:f" }', 25, "cannot be imported"),
    "no name": changed(MOTION, 'motion = { type = "function", path = "tests.io.users:f" }', 25, "cannot be imported"),
    "no function": changed(MOTION, 'motion = { type = "function", path = "math:pi" }', 25, "is a float, no function"),
    "no class": changed('"Revolute"', '"tests.io.users:wave"', 14, "is no class of parts"),
    "no joint": changed('"Revolute"', '"tests.io.users:Doubled"\nrate = 1.0', 16, "Doubled", "entry"),
    "a force": changed('type = "Revolute"', 'type = "tests.io.users:Tie"', 14, "a Tie cannot stand here"),
    "a function that fails": changed(
        MOTION, 'motion = { type = "function", path = "math:sqrt" }', 23, "'motor'", "jnp.sin"
    ),
    "fields": changed('type = "Revolute"', 'type = "tests.io.users:Tie"\nstifness = 1.0', 15, "'stiffness'?"),
}
