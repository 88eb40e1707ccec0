"""The gallery: each example mechanism with its picture, description, source and degrees of freedom."""

from pathlib import Path

import jax
import matplotlib.pyplot as plt

import jaxmbd as mbd
from jaxmbd import examples, plot


def write(folder: Path) -> None:
    """Draw all examples at their initial states, and write the page that shows them."""
    pictures = folder / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery",
        "",
        "The example mechanisms of `jaxmbd.examples` at their initial states. `jaxmbd.examples.get(name).simulate()` "
        "is the motion; `jaxmbd simulate name` is the same as a command.",
        "",
    ]
    plt.switch_backend("agg")
    with jax.enable_x64(True), plt.rc_context({"savefig.bbox": "tight"}):
        for name in examples.names():
            lines += _section(name, pictures)
    (folder / "gallery.md").write_text("\n".join(lines), encoding="utf-8")


def _section(name: str, pictures: Path) -> list[str]:
    example = examples.get(name)
    state = example.state()
    system = mbd.describe(example.mechanism, state)
    plot.draw(example.mechanism, state.q)
    plt.savefig(pictures / f"{name}.png", dpi=100)
    plt.close()
    bodies = len(example.mechanism.bodies)
    freedom = f"{system.freedom}" + (f", {system.remaining_freedom} with its drivers" if system.driven else "")
    redundant = f"; redundant constraints: {len(system.redundant)}" if system.redundant else ""
    return [
        f"## {name}", "", example.description, "",
        f"```{{image}} gallery/{name}.png\n:alt: {example.description}\n:width: 420px\n```", "",
        f"Degrees of freedom: {freedom}; moving bodies: {bodies}{redundant}.",
        f"Source: {example.source}." if example.source else "", "",
    ]  # fmt: skip
