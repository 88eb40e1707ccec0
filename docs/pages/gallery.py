"""The gallery: each example mechanism with its picture, a page that plays its motion, and its code."""

import inspect
from pathlib import Path

import jax
import matplotlib.pyplot as plt

import jaxmbd as mbd
from jaxmbd import examples, plot, view
from jaxmbd.model.sensor import Point

ROOT = Path(__file__).parents[2]
INTRODUCTION = """# Gallery

The example mechanisms of `jaxmbd.examples`. A picture leads to the motion, which can be played, and to the code.

```{toctree}
:hidden:
:glob:
gallery/*
```

:::::{container} cards"""
CARD = """::::{{container}} card
[![{name}](gallery/{name}.png)](gallery/{name}.md)

**[{name}](gallery/{name}.md)** {description}
::::
"""
PAGE = """# {name}

{description}

```{{raw}} html
<iframe class="playable" src="../../play/{name}.html" title="the motion of {name}" loading="lazy"></iframe>
<p><a href="../../play/{name}.html">In the whole window</a></p>
```

Degrees of freedom: {freedom}; moving bodies: {bodies}{redundant}. {source}

```python
import jaxmbd as mbd

solution = mbd.examples.get("{name}").simulate()
solution.show(channels={channels})
```

`jaxmbd show {name}` plays the motion too, and `jaxmbd live {name}` lets you move and change the mechanism by hand.

## The model

From [`{file}`](../../../{file}#{function}):

```python
{code}
```
"""


def write(folder: Path) -> None:
    """Draw all examples at their initial states, compute their motions, and write the pages that show them."""
    for inner in ("gallery", "site/play"):  # what `site` holds is copied into the site
        (folder / inner).mkdir(parents=True, exist_ok=True)
    cards = [INTRODUCTION]
    plt.switch_backend("agg")
    with jax.enable_x64(True), plt.rc_context({"savefig.bbox": "tight"}):
        for name in examples.names():
            example = examples.get(name)
            plot.draw(example.mechanism, example.state())
            plt.savefig(folder / "gallery" / f"{name}.png", dpi=100)
            plt.close()
            solution = example.simulate()
            points = [sensor.name for sensor in example.mechanism.sensors if isinstance(sensor, Point)]
            shown = view.page(solution, channels=channels(example), trace=points, title=name)
            shown.save(folder / "site" / "play" / f"{name}.html")
            (folder / "gallery" / f"{name}.md").write_text(_page(example), encoding="utf-8")
            cards.append(CARD.format(name=name, description=example.description))
    (folder / "gallery.md").write_text("\n".join([*cards, ":::::", ""]), encoding="utf-8")


def channels(example: examples.Example) -> list[str]:
    """The quantities whose curves are shown: the first of those of interest, a curve or two for each panel."""
    return list(example.outputs[:4])


def _page(example: examples.Example) -> str:
    system = mbd.describe(example.mechanism, example.state())
    make = inspect.unwrap(getattr(examples, example.name.replace("-", "_")))
    return PAGE.format(
        name=example.name,
        description=example.description,
        freedom=f"{system.freedom}" + (f", {system.remaining_freedom} with its drivers" if system.driven else ""),
        bodies=len(example.mechanism.bodies),
        redundant=f"; redundant constraints: {len(system.redundant)}" if system.redundant else "",
        source=f"Source: {example.source}." if example.source else "",
        channels=channels(example),
        file=Path(inspect.getfile(make)).relative_to(ROOT),
        function=make.__name__,
        code=inspect.getsource(make),
    )
