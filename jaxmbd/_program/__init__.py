"""Functions as straight-line programs of scalar operations, run by a small machine of our own."""

from jaxmbd._program._call import compiled, is_program
from jaxmbd._program._elimination import FORMULAS, dense, factor_p, solve_p
from jaxmbd._program._files import limit_size, make_own_folder, size_limit
from jaxmbd._program._kept import kept
from jaxmbd._program._plan import Pattern

__all__ = [
    "FORMULAS",
    "Pattern",
    "compiled",
    "dense",
    "factor_p",
    "is_program",
    "kept",
    "limit_size",
    "make_own_folder",
    "size_limit",
    "solve_p",
]
