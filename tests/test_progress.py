"""The line that says what is being compiled: where it is shown, when, with what text, and that it goes away."""

import io
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

from jaxmbd import progress
from jaxmbd.identification._fit import reporting as of_fit
from jaxmbd.progress import Line, announced, announcing, reporting, silenced


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def rendered(text: str) -> str:
    """What a terminal shows after all that was written."""
    line = ""
    for part in text.split("\r"):
        line = part.removesuffix("\x1b[K") if "\x1b[K" in part else line + part
    return line


class Clock:
    """A clock that goes on only while a line waits; it ends the wait after the last of the times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: float) -> None:
        self.now, self.busy, self.finished = 100.0, busy, threading.Event()

        def wait(line: Any, seconds: float) -> bool:
            if self.left > 0:
                self.now += min(seconds, self.left)
                return False
            self.finished.set()
            return line._done.wait(10)

        monkeypatch.setattr(Line, "_wait", wait)
        monkeypatch.setattr(Line.__init__, "__defaults__", (0.0, lambda: self.now))

    @property
    def left(self) -> float:
        return 100.0 + self.busy - self.now

    def work(self) -> None:
        """What takes `busy` seconds of this clock."""
        assert self.finished.wait(10)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal in place of stderr, and nothing asked for by the environment."""
    screen = Screen()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=screen, modules={}))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("JAXMBD_PROGRESS", raising=False)
    return screen


MECHANISM = SimpleNamespace(bodies=[SimpleNamespace(name=name) for name in ("crank", "rod", "slider", "b4", "b5")])


def integrate(x: Any) -> Any:
    return x


def test_a_long_compilation_is_announced_with_its_duration(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 3.25)
    with announced(integrate, (1.0, SimpleNamespace(mechanism=MECHANISM))):
        clock.work()
        written = screen.getvalue()
    assert rendered(written) == "compiling simulate of crank, rod, slider, ... (5 bodies) ... 3 s"
    seconds = [part.removesuffix("\x1b[K").split()[-2] for part in written.split("\r")[1:]]
    assert seconds == ["1", "2", "2", "2", "3", "3"]  # 1, 1.5 (rounded to even), 2, 2.5, 3, 3.25
    assert rendered(screen.getvalue()) == ""
    assert "\n" not in screen.getvalue()


def test_a_short_compilation_is_not_announced(screen: Screen) -> None:
    threads = threading.active_count()
    with announced(integrate, [MECHANISM]):
        assert threading.active_count() == threads + 1
    assert screen.getvalue() == ""
    assert threading.active_count() == threads


@pytest.mark.parametrize(("wish", "written"), [("", ""), ("0", ""), ("1", "compiling simulate of a ... 2 s\n")])
def test_a_pipe_gets_a_line_only_if_asked_for(wish: str, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=pipe, modules={}))
    monkeypatch.setenv("JAXMBD_PROGRESS", wish)
    clock = Clock(monkeypatch, 2.0)
    with announced(integrate, [SimpleNamespace(bodies=[SimpleNamespace(name="a")])]):
        if wish == "1":
            clock.work()
    assert pipe.getvalue() == written


def test_a_terminal_gets_no_line_if_turned_off(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMBD_PROGRESS", "0")
    threads = threading.active_count()
    with announced(integrate, [MECHANISM]), reporting(True, "fitting"):
        assert threading.active_count() == threads
    assert screen.getvalue() == ""


def test_a_narrow_terminal_gets_a_line_that_does_not_wrap(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    clock = Clock(monkeypatch, 1.0)
    with announced(integrate, [MECHANISM]):
        clock.work()
        assert rendered(screen.getvalue()) == "compiling simulate "
    assert rendered(screen.getvalue()) == ""


def test_a_notebook_has_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(content: Any, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        shown.append(content["text/plain"])
        return SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))

    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=display))
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=io.StringIO(), modules={"IPython": ipython}))
    monkeypatch.delenv("JAXMBD_PROGRESS", raising=False)
    clock = Clock(monkeypatch, 2.0)
    with announced(integrate, []):
        clock.work()
    assert shown == [*(f"compiling simulate ... {n} s" for n in (1, 2, 2)), ""]


def test_what_is_part_of_a_longer_activity_has_no_line_of_its_own(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit says itself what it does; a progress bar has the terminal."""
    assert of_fit is reporting
    clock = Clock(monkeypatch, 0.5)
    with reporting(True) as report:
        report("compiling the simulations ...")
        with announced(integrate, [MECHANISM]):
            clock.work()
        assert rendered(screen.getvalue()) == "compiling the simulations ... 0 s"
    assert rendered(screen.getvalue()) == ""
    threads = threading.active_count()
    with silenced("compiling ..."), announced(integrate, [MECHANISM]):
        assert threading.active_count() == threads
    assert not progress._lines.locked()


def test_only_calls_that_compile_are_announced(screen: Screen) -> None:
    """By the first call with a type of argument; the line ends when the function raises."""
    begun: list[int] = []

    def doubled(x: Any) -> Any:
        begun.append(threading.active_count())
        if x.shape == (3,):
            raise ValueError("three")
        return 2 * x

    call, threads = announcing(doubled, eqx.filter_jit), threading.active_count()
    for size in (1, 1, 2, 1):
        assert call(jnp.ones(size)).shape == (size,)
        assert not progress._lines.locked()
    assert begun == [threads + 1] * 2
    with pytest.raises(ValueError, match="three"):
        call(jnp.ones(3))
    assert threading.active_count() == threads
    assert not progress._lines.locked()


def test_an_announcement_costs_a_warm_call_next_to_nothing(screen: Screen) -> None:
    call: Callable[[Any], Any] = announcing(lambda x: x, lambda function: lambda x: x)
    bodies = SimpleNamespace(bodies=[SimpleNamespace(name="b")] * 100_000)
    start = time.process_time()
    for _ in range(100):
        call(bodies)
    assert time.process_time() - start < 0.1
