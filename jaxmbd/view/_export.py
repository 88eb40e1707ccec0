"""What was found by hand, as text: a model file, and the lines of Python that go on from it."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from jaxmbd import io
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.state import State


def exported(
    mechanism: Mechanism, numbers: Mapping[str, float], fixed: Mapping[str, float], state: State, title: str
) -> dict[str, str]:
    """The text of a model file, with a reason where there can be none, and that of Python.

    `state`: that of the mechanism, or of the mechanism without its drivers.
    """
    guess = {name: float(value) for name, value in zip(state.coordinate_names, state.q, strict=True)}
    changed = f"mechanism = mbd.with_numbers(mechanism, {_written(numbers)})\n" if numbers else ""
    released = (
        "mechanism = mechanism.replaced(drivers=[])  # explored without its drivers\n" if mechanism.drivers else ""
    )
    python = f"{changed}{released}state = mbd.assemble(mechanism, {_written(fixed)}, guess={_written(guess)})\n"
    toml, why = "", ""
    try:
        toml = _model_text(mechanism, state)
    except MechanismError as error:
        why = str(error)
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in title) or "mechanism"
    return {"python": python, "toml": toml, "why": why, "name": f"{stem}.toml"}


def _model_text(mechanism: Mechanism, state: State) -> str:
    with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
        path = Path(folder) / "model.toml"
        io.save(mechanism, path, state=None if mechanism.drivers else state)
        return path.read_text(encoding="utf-8")


def _written(values: Mapping[str, float]) -> str:
    """A dictionary as Python text, with numbers to twelve digits."""
    return "{" + ", ".join(f'"{name}": {float(f"{value:.12g}")!r}' for name, value in values.items()) + "}"
