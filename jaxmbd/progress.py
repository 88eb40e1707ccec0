"""One line that says what is going on and for how long: in place on a terminal or in a notebook, then erased.

Nothing is shown in pipes, files and logs. The environment variable `JAXMBD_PROGRESS` changes that: with 1, a finished
line with the duration is written there; with 0 nothing is shown anywhere.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Protocol, TextIO

from jaxmbd.errors import printable

_PATIENCE = 1.0  # [s] what takes less is not announced
_PERIOD = 0.5  # [s] between updates
_SHOWN = 3  # bodies of a mechanism that are named
# What users call the analyses whose compiled functions have other names.
_VERBS = {
    "integrate": "simulate", "motion": "kinematics", "settle": "equilibrium", "path": "equilibrium_path",
    "efforts": "inverse_dynamics", "linearized": "linearize", "search_all": "assembly_modes",
}  # fmt: skip

_lines = threading.Lock()  # there is one line at a time: what is part of a longer activity is not announced beside it


class Display(Protocol):
    """Where a line is shown: `show` writes it, over the one before; `end` gets the last one."""

    def show(self, text: str) -> None: ...

    def end(self, text: str) -> None: ...


class Terminal:
    """A terminal: the line is rewritten in place, and erased at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be erased
        self._stream.write(f"\r{text[:width]}\x1b[K")
        self._stream.flush()

    def end(self, text: str) -> None:
        self._stream.write("\r\x1b[K")
        self._stream.flush()


class Log:
    """A file or a pipe, if asked for: one line at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        pass

    def end(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class Notebook:
    """A notebook: an output of the running cell, which is updated, and empty at the end."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display, self._handle = display, None

    def show(self, text: str) -> None:
        content: Any = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def end(self, text: str) -> None:
        self.show("")


def notebook() -> Any:
    """The module IPython if this process runs a notebook, else None."""
    ipython: Any = sys.modules.get("IPython")
    runs = ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
    return ipython if runs else None


def display_of_process() -> Display | None:
    """Where this process shows a line; None if nobody looks."""
    wish = os.environ.get("JAXMBD_PROGRESS", "")
    if wish == "0":
        return None
    ipython = notebook()
    if ipython is not None:
        return Notebook(ipython.display.display)
    if sys.stderr is not None and sys.stderr.isatty():
        return Terminal(sys.stderr)
    return Log(sys.stderr) if wish == "1" and sys.stderr is not None else None


class Line:
    """A line that a thread updates from `begin` to `end`, if it takes longer than `after` seconds."""

    def __init__(
        self, text: Callable[[], str], after: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.text, self._after, self._clock = text, after, clock
        self._done, self._thread, self._began = threading.Event(), None, 0.0

    def begin(self) -> None:
        """Begin, unless it has begun, nobody looks, or there is a line already."""
        display = None if self._thread is not None or _lines.locked() else display_of_process()
        if display is None or not _lines.acquire(blocking=False):
            return
        self._began = self._clock()
        self._thread = threading.Thread(target=self._run, args=(display,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Erase the line."""
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            self._thread = None
            _lines.release()

    def _run(self, display: Display) -> None:
        with suppress(OSError, ValueError):  # the stream may have been closed
            if self._wait(self._after):
                return
            while True:
                display.show(self._written())
                if self._wait(_PERIOD):
                    break
            display.end(self._written())

    def _wait(self, seconds: float) -> bool:
        return self._done.wait(seconds)

    def _written(self) -> str:
        return printable(f"{self.text()} {self._clock() - self._began:.0f} s")


@contextmanager
def reporting(wanted: bool, text: str = "") -> Iterator[Callable[[str], None]]:
    """Show a line from the start, whose text the caller changes by the function that it gets."""
    line = Line(lambda: text)

    def report(said: str) -> None:
        nonlocal text
        text = said
        if wanted:
            line.begin()

    try:
        if text:
            report(text)
        yield report
    finally:
        line.end()


@contextmanager
def silenced(text: str) -> Iterator[None]:
    """Print a text once in place of the line, for what then writes to the terminal itself; do nothing without one."""
    taken = bool(text) and _lines.acquire(blocking=False)
    if text:
        print(printable(text), flush=True)
    try:
        yield
    finally:
        if taken:
            _lines.release()


@contextmanager
def announced(function: Callable[..., Any], arguments: Iterable[Any], begin: bool = True) -> Iterator[Line]:
    """Announce that an analysis is being compiled, if it takes long, from here or else from the line's `begin` on."""
    name = function.__name__.strip("_")
    line = Line(lambda: f"compiling {_VERBS.get(name, name)}{_of_mechanism(arguments)} ...", _PATIENCE)
    try:
        if begin:
            line.begin()
        yield line
    finally:
        line.end()


def announcing(function: Callable[..., Any], jit: Callable[..., Any]) -> Callable[..., Any]:
    """`jit(function)`, announced in those calls in which the function is traced and compiled."""
    current: ContextVar[Line | None] = ContextVar("current", default=None)

    @wraps(function)
    def traced(*arguments: Any) -> Any:
        line = current.get()
        if line is not None:
            line.begin()
        return function(*arguments)

    compiled = jit(traced)

    def call(*arguments: Any) -> Any:
        with announced(function, arguments, begin=False) as line:
            token = current.set(line)
            try:
                return compiled(*arguments)
            finally:
                current.reset(token)

    return call


def _of_mechanism(arguments: Iterable[Any]) -> str:
    """The bodies of the mechanism among the arguments of an analysis."""
    for x in arguments:
        bodies = getattr(getattr(x, "mechanism", x), "bodies", ())
        names = [str(body.name) for body in bodies]
        if names:
            more = f", ... ({len(names)} bodies)" if len(names) > _SHOWN else ""
            return f" of {', '.join(names[:_SHOWN])}{more}"
    return ""
