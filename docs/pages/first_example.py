"""The pictures of the example on the first page: it is run, and each of its figures is saved."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1]


def write(folder: Path) -> None:
    """Run the example, and write its figures as `index/1.png`, `index/2.png`."""
    target = folder / "index"
    target.mkdir(parents=True, exist_ok=True)
    plt.switch_backend("agg")
    code = re.findall(r"```python\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    with jax.enable_x64(True), contextlib.redirect_stdout(io.StringIO()):
        names: dict[str, Any] = {}
        exec(compile("\n".join(code), "index.md", "exec"), names)
    for number in plt.get_fignums():
        plt.figure(number).savefig(target / f"{number}.png", dpi=100, bbox_inches="tight")
    plt.close("all")
