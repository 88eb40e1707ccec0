"""The equations of a mechanism as matrices, formulas and source text."""

from jaxmbd.symbolic._symbolic import SymbolicSystem as SymbolicSystem
from jaxmbd.symbolic._system import System as System
from jaxmbd.symbolic._system import export as export
