"""Every notebook runs from top to bottom, and is stored with its outputs so that it can be read as it is."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.marks import slow_but

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = {path.stem: path for path in sorted(FOLDER.rglob("*.ipynb"))}
TIMEOUT = 600  # [s] for one cell; the slowest compiles and runs a fit.

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)


def read(path: Path) -> nbformat.NotebookNode:
    """The notebook, checked against its format."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells that hold code, without empty ones."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def test_a_notebooks_folder_holds_notebooks() -> None:
    """Guards the tests below: with no notebook to run on, they would check nothing."""
    assert NOTEBOOKS or not FOLDER.exists(), f"no notebook in {FOLDER}"


@pytest.mark.parametrize("name", slow_but(["one_bar_linkage"], NOTEBOOKS))
def test_notebook_runs(name: str) -> None:
    """A cell's error ends the test with that cell's source and traceback."""
    path = NOTEBOOKS[name]
    notebook = read(path)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        # Without the kernel's remarks on its own sockets.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    # The kernel draws as it does for a reader: not with the backend that the tests set.
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    with client.setup_kernel(env=environment):
        assert client.km is not None
        command = client.km.format_kernel_cmd()
        assert command[0] == sys.executable, f"the kernel runs {command[0]}, the tests run {sys.executable}"
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)


@each_notebook
def test_notebook_is_stored_with_its_outputs(path: Path) -> None:
    """Stored after a run from top to bottom, with outputs and without errors."""
    cells = code_cells(read(path))
    counts = [cell.execution_count for cell in cells]
    outputs = [output for cell in cells for output in cell.outputs]
    run_again = f"run {path.name} from top to bottom and store it with its outputs"
    assert counts == list(range(1, len(cells) + 1)), f"cells ran in the order {counts}: {run_again}"
    assert outputs, f"no outputs: {run_again}"
    assert not any(output.output_type == "error" for output in outputs), f"a cell failed: {run_again}"
