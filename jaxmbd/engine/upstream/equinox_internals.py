"""Everything in equinox that this package uses and that equinox does not document.

It may change these at any minor version, which is why `pyproject.toml` caps it. `USED` says what each one is used for,
and `tests/test_upstream.py` fails with that sentence when one of them is gone.
"""

from functools import partial
from typing import Any

import equinox.internal as eqxi
from equinox import _jit, _tree

while_loop = partial(eqxi.while_loop, kind="lax")  # `jax.lax.while_loop` that writes into buffers in place
write_row = eqxi.buffer_at_set
any_instance = eqxi.unvmap_any

USED = {
    "equinox.internal.while_loop": "steps are recorded, and swept forward and backward, in loops with buffers",
    "equinox.internal.buffer_at_set": "the states between checkpoints are written into a buffer in place",
    "equinox.internal.unvmap_any": "a branch that no instance of a batch needs is not run",
    "equinox._tree._LeafWrapper": "a mechanism whose places are looked up holds it for numbers",
    "equinox._jit.last_error_info": "errors of running programs are raised with their own text",
}


def is_placeholder(leaf: Any) -> bool:
    """True for what stands for a number while `equinox.tree_at` looks for the place that is meant."""
    return isinstance(leaf, _tree._LeafWrapper)


def report_error(text: str) -> None:
    """Give the text of an error to `equinox.filter_jit`, which raises it when the running program has stopped."""
    _jit.last_error_info = (text, [])
