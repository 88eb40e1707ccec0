"""A value's fingerprint changes with the code that it depends on, and with nothing else."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from jaxmbd.compile.cache.fingerprint import fingerprint

SOURCE = """
import math
import equinox as eqx
import jax.numpy as jnp
from jaxmbd import planar as pl

SCALE = 2.0
table = {"a": 1.0, "b": [3, 4]}

def slope(x):
    return SCALE * jnp.sin(x) + table["a"]

def law(t, frames, *, gain=1.5):
    return jnp.stack([slope(gain * t) for _ in range(3)])

def bound(limit):
    return lambda t: jnp.minimum(t, limit)

limited = bound(0.5)

def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)

class Base(pl.AbstractJoint):
    name: str = eqx.field(static=True)
    offset: float = eqx.field(default=0.25, converter=jnp.asarray)

    @property
    def lever(self):
        return 0.7

    def residual(self, t, frames):
        return frames[0].position - self.lever * self.offset

class Pin(Base):
    loads = ("Fx", "Fy")

    def residual(self, t, frames):
        return super().residual(t, frames) + math.pi
"""


def module(text: str) -> dict[str, Any]:
    made = types.ModuleType("lab")
    sys.modules["lab"] = made
    exec(text, vars(made))
    return vars(made)


NAMES = ("law", "limited", "factorial", "Pin", "slope")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_text_has_the_same_fingerprint(name: str) -> None:
    first = fingerprint(module(SOURCE)[name])
    assert first is not None
    assert fingerprint(module("\n\n# moved down\n" + SOURCE)[name]) == first


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("SCALE = 2.0", "SCALE = 2.1", {"slope", "law"}),
        ('"a": 1.0', '"a": 1.1', {"slope", "law"}),
        ("jnp.sin", "jnp.cos", {"slope", "law"}),
        ("gain=1.5", "gain=1.6", {"law"}),
        ("range(3)", "range(4)", {"law"}),
        ("bound(0.5)", "bound(0.6)", {"limited"}),
        ("jnp.minimum", "jnp.maximum", {"limited"}),
        ("n * fact", "n + fact", {"factorial"}),
        ("default=0.25", "default=0.26", {"Pin"}),
        ("converter=jnp.asarray", "converter=jnp.abs", {"Pin"}),
        ("return 0.7", "return 0.8", {"Pin"}),
        ("- self.lever", "+ self.lever", {"Pin"}),
        ('"Fy")', '"F_y")', {"Pin"}),
        ("+ math.pi", "+ math.e", {"Pin"}),
        ("class Pin(Base)", "class Pin(pl.AbstractJoint)", {"Pin"}),
    ],
)
def test_what_the_code_depends_on_changes_it(before: str, after: str, changed: set[str]) -> None:
    assert before in SOURCE
    first, second = module(SOURCE), module(SOURCE.replace(before, after))
    assert {name for name in NAMES if fingerprint(first[name]) != fingerprint(second[name])} == changed


@pytest.mark.parametrize(
    "text",
    [
        "import lab as other\ndef f(t): return other.scale * t",
        "def f(t): return float(open('scale').read()) * t",
        "def f(t):\n    import lab\n    return lab.scale * t",
        "import os\ndef f(t): return float(os.environ['scale']) * t",
        "import numpy as np\ndef f(t): return np.random.rand() * t",
        "from numpy.random import rand\ndef f(t): return rand() * t",
        "import numpy.random as chance\ndef f(t): return chance.rand() * t",
        "from time import perf_counter as now\ndef f(t): return now() * t",
        "from numpy import loadtxt as table\ndef f(t): return table('scale') * t",
        "import numpy as np\ndef f(t): return np.genfromtxt('scale') * t",
        "import numpy as np\ndef f(t): return np.fromfile('scale') * t",
        "import numpy as np\ndef f(t): return np.memmap('scale')[0] * t",
        "from numpy.lib.format import open_memmap\ndef f(t): return open_memmap('scale')[0] * t",
        "import jax.numpy as jnp\ndef f(t): return jnp.fromfile('scale') * t",
        "import equinox as eqx\ndef f(t): return eqx.tree_deserialise_leaves('scale', t)",
        "import pandas as pd\ndef f(t): return pd.read_csv('scale') * t",
        "from xarray import open_dataset as table\ndef f(t): return table('scale') * t",
        "from pathlib import Path\nfile = Path('scale')\ndef f(t): return float(file.read_text()) * t",
        "import jaxmbd as mbd\ndef f(t): return mbd.io.read('robot.xml').mechanism",
        "class C:\n    def __reduce__(self): raise RuntimeError\nc = C()\ndef f(t): return c.scale * t",
        "import threading\nlock = threading.Lock()\ndef f(t):\n    with lock: return t",
    ],
)
def test_what_reads_more_than_its_arguments_has_none(text: str) -> None:
    assert fingerprint(module(text)["f"]) is None


def test_a_library_is_known_by_its_names_and_a_user_is_not() -> None:
    """A function of the user's that says it is a library's is not taken for it."""
    text = "def f(x): return x + 1\nf.__module__, f.__qualname__ = 'jax.numpy', 'sin'"
    assert fingerprint(jnp.sin) is not None
    assert fingerprint(module(text)["f"]) not in (None, fingerprint(jnp.sin))


@pytest.mark.slow
def test_other_processes_find_the_same() -> None:
    text = f"""
from jaxmbd.compile.cache.fingerprint import fingerprint
import hashlib, sys, types
sys.modules["lab"] = lab = types.ModuleType("lab")
exec({SOURCE!r}, vars(lab))
print(*(hashlib.sha256(fingerprint(vars(lab)[name])).hexdigest() for name in {NAMES!r}))
"""
    runs = [
        subprocess.run([sys.executable, *seed, "-c", text], check=True, capture_output=True, text=True).stdout
        for seed in ([], ["-R"])
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == len(NAMES)


@pytest.mark.slow
def test_content_of_a_function_is_the_same_in_another_process() -> None:
    """Sets are in another order there."""
    code = """
from hashlib import sha256
from jaxmbd.compile.cache.fingerprint import fingerprint
names = {"crank", "coupler", "rocker", "base"}
def f(x, name="crank"): return x if name in {"crank", "coupler", "rocker", "base"} or name in names else -x
print(sha256(fingerprint(f)).hexdigest())
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        for seed in ("1", "2", "3")
    ]
    assert len({run.stdout for run in runs}) == 1
