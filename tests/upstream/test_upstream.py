"""Undocumented parts of JAX, diffrax and equinox that this package uses: they are listed, there, and as expected."""

import ast
import importlib
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import pytest
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxmbd.integrate.solvers.unrolled_erk import UnrolledERK, unrolled
from jaxmbd.upstream import diffrax_internals, equinox_internals, jax_internals
from jaxmbd.upstream.matplotlib_internals import drawn_once, frame_rate

PACKAGE = Path(jax_internals.__file__).parents[1]
USED = jax_internals.USED | equinox_internals.USED | diffrax_internals.USED


def look_up(name: str) -> Any:
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(name)


@pytest.mark.parametrize("name", USED)
def test_it_is_there(name: str) -> None:
    try:
        look_up(name)
    except (ImportError, AttributeError) as error:
        library = name.split(".")[0]
        raise AssertionError(
            f"{library} {importlib.import_module(library).__version__} has no {name} any more, by which {USED[name]}."
        ) from error


def test_diffraxs_loop_has_the_arguments_and_the_state_that_the_adjoint_reads() -> None:
    seen: list[Any] = []

    class Spy(dfx.AbstractAdjoint):
        def loop(self, **given: Any) -> Any:  # pyright: ignore
            seen.append(given)
            return dfx.RecursiveCheckpointAdjoint().loop(**given)

    dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: -y), dfx.Tsit5(), 0.0, 1.0, 0.1, jnp.ones(1), adjoint=Spy(), max_steps=64
    )
    (given,) = seen
    assert set(diffrax_internals.LOOP_ARGUMENTS) <= set(given), "diffrax calls an adjoint's loop with other arguments"
    missing = [name for name in diffrax_internals.LOOP_STATE if name not in type(given["init_state"]).__annotations__]
    assert not missing, f"the state of diffrax's loop has no {missing}, from which the discrete adjoint records steps"


@pytest.mark.parametrize("solver", [dfx.Heun(), dfx.Tsit5(), dfx.Dopri5(), dfx.Dopri8(), dfx.Bosh3()])
def test_diffraxs_explicit_methods_are_unrolled(solver: Any) -> None:
    """Were one not recognised any more, it would still work, several times slower, and nothing would say so."""
    assert isinstance(unrolled(solver), UnrolledERK)


def test_states_saved_at_times_are_recognised() -> None:
    assert dfx.SubSaveAt(ts=jnp.zeros(2)).fn is diffrax_internals.SAVE_STATE
    assert dfx.SubSaveAt(t1=True, fn=lambda t, y, args: t).fn is not diffrax_internals.SAVE_STATE


def test_matplotlibs_animations_tell_their_rate() -> None:
    animation = FuncAnimation(Figure(), lambda k: [], frames=2, interval=1000 / 30)
    animation._draw_was_started = True  # else it warns that nobody saw it  # pyright: ignore
    assert frame_rate(animation) == pytest.approx(30, rel=1e-12)


def test_matplotlib_draws_each_frame_of_a_film_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the canvas drawn again, a film would take twice as long, and nothing would say so."""
    drawn: list[Figure] = []
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda figure, renderer: drawn.append(figure) or draw(figure, renderer))
    figure = FigureCanvasAgg(Figure(figsize=(1, 1))).figure
    animation = FuncAnimation(figure, lambda k: [], frames=3)
    with drawn_once(animation):
        animation.save(tmp_path / "film.gif", writer=PillowWriter(fps=5), dpi=20)
    drawn_with_it, drawn[:] = len(drawn), []
    animation.save(tmp_path / "film.gif", writer=PillowWriter(fps=5), dpi=20)
    assert (drawn_with_it, len(drawn)) == (3, 6)


UNDOCUMENTED = ("jax._src", "jax.interpreters", "jax.extend", "jax.experimental", "equinox.internal", "equinox._")
HERE = dict.fromkeys(("_interval", "_fig", "_idle_draw_cntx"), "of matplotlib, tested above")
HERE |= dict.fromkeys(("_asdict", "_fields"), "of named tuples, documented")


def test_all_that_is_undocumented_is_listed() -> None:
    """Each name that is imported from a module without documentation, and each private attribute that is not ours."""
    ours, private, imported = set[str](), dict[str, str](), dict[str, str]()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                ours.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                ours.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                ours.add(node.attr)
            elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                private[node.attr] = f"{path}:{node.lineno}"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(UNDOCUMENTED):
                imported |= {f"{node.module}.{alias.name}": f"{path}:{node.lineno}" for alias in node.names}
    listed = {part for name in USED for part in name.split(".")}
    missing = {name: place for name, place in private.items() if name not in ours | {*HERE} | listed}
    missing |= {
        name: place for name, place in imported.items() if not any(f"{known}.".startswith(f"{name}.") for known in USED)
    }
    assert not missing, f"they are in no USED of {PACKAGE / 'upstream'}: {missing}"
    assert imported
