"""`explore`: a mechanism that is changed and moved by hand, in a notebook or in the browser."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.arrays import is_concrete
from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.progress import notebook
from jaxmbd.state.state import State, check_state
from jaxmbd.view._server import Server
from jaxmbd.view._session import Session
from jaxmbd.view._widget import widget

_HEIGHT = 640  # [px] of a frame in a notebook


class Explorer:
    """A mechanism that is explored: a page shows it, and what is found there can be read here, at any time.

    - `mechanism`: with the numbers that the sliders have; `numbers`: those that differ from the start, by name;
    - `state`: the position, at rest, of the mechanism without its drivers;
    - `fixed`: the coordinates that drive it and their values, as `assemble` takes them.

    As the value of a cell of a notebook it is shown there; `show` shows it anywhere.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def mechanism(self) -> Mechanism:
        return self._session.mechanism

    @property
    def numbers(self) -> dict[str, float]:
        return dict(self._session.numbers)

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def fixed(self) -> dict[str, float]:
        return self._session.fixed

    def __repr__(self) -> str:
        changed = ", ".join(f"{name} = {value:.6g}" for name, value in self.numbers.items()) or "no number changed"
        at = ", ".join(f"{name} = {value:.6g}" for name, value in self.fixed.items())
        return f"Explorer at {at or 'the only position'}; {changed}. show() shows it"

    def show(self, height: int = _HEIGHT, port: int = 0, browser: bool = True) -> None:
        """Show it in a notebook below the cell, `height` [px] high; elsewhere in the browser, until Ctrl-C is pressed.

        **Arguments:** `port`: that of the server on this computer, a free one unless given; `browser=False`: print the
        address and start no browser.

        **Raises:** `MechanismError` without the packages that it needs (`pip install 'jaxmbd[live]'`), and for a port
        that cannot be used.
        """
        ipython = notebook()
        if ipython is not None:
            ipython.display.display(widget(self._session, height))
            return
        server = self.serve(port)
        print(f"exploring at {server.address}  (Ctrl-C ends it)", flush=True)
        if browser and not server.open():
            print("No browser could be started: open this address in one.", flush=True)
        server.wait()

    def serve(self, port: int = 0) -> Server:
        """Start the server of the page, which answers in a thread of its own, and return it: `address`, `stop()`."""
        return Server(self._session, port).start()

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        if notebook() is None:
            return {"text/plain": repr(self)}
        return widget(self._session, _HEIGHT)._repr_mimebundle_(**asked)


def explore(
    mechanism: Mechanism,
    state: State | None = None,
    *,
    parameters: str | Iterable[str] | Mapping[str, Sequence[float] | None] | None = None,
    show: str | Iterable[str] | None = None,
    trace: str | Iterable[str] | None = None,
    title: str = "",
) -> Explorer:
    """Explore a mechanism by hand: drag its bodies, change its numbers by sliders, and switch its assembly modes.

    While a point is dragged, the position is the nearest to the pointer that the joints allow, found in about a
    millisecond; the mechanism stays in its assembly mode, and comes as near as it gets to what it cannot reach. Where a
    number changes, the coordinates that drive the mechanism keep their values, and the number stops where the loops
    cannot be closed with these. Paths of points, and curves over a driving coordinate, follow. Drivers are released.
    Inertia and forces play no part.

    **Arguments:**

    - `state`: where it begins, and the time for which all is shown; assembled unless given;
    - `parameters`: names or patterns of numbers for sliders, as in `numbers`, or by name their ranges,
      `{"crank.length": (0.1, 0.4)}`, None for half to one and a half times the value; by default up to twelve numbers
      that change positions;
    - `show`: quantities of position whose curves are drawn; by default coordinates of two joints;
    - `trace`: `Point` sensors, or bodies for their centres of mass, whose paths are drawn; by default all such sensors;
    - `title`: the heading of the page.

    **Returns:** an `Explorer`: shown as the value of a cell, or by `show()`; its `mechanism`, `numbers`, `fixed` and
    `state` are those of the page.

    **Raises:** `MechanismError` for names that do not exist, ranges that do not hold the number's value, and quantities
    that depend on speeds or forces; `AssemblyError` if the mechanism cannot be assembled.

        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> explorer = mbd.explore(four_bar, parameters={"A.a.position[0]": (0.03, 0.12)})
        >>> explorer.show()  # doctest: +SKIP
        >>> explorer.numbers
        {}
    """
    check_mechanism(mechanism)
    check_instance("title", title, str, "a string")
    if not is_concrete(mechanism, state):
        raise MechanismError("explore shows known numbers: call it outside of jit, vmap and grad.")
    if state is None:
        state = assemble(mechanism)
    check_state(mechanism, state, "explore(mechanism, state)")
    return Explorer(Session(mechanism, state, parameters, show, trace, title))
