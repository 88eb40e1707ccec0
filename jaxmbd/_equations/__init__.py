"""From parts to equations."""

from jaxmbd._equations._equations import Equations as Equations
from jaxmbd._equations._equations import Position as Position
from jaxmbd._equations._linear import Tall as Tall
from jaxmbd._equations._linear import counted as counted
from jaxmbd._equations._linear import eliminated as eliminated
from jaxmbd._equations._linear import rank_of as rank_of
from jaxmbd._equations._linear import tolerance_of_rank as tolerance_of_rank
from jaxmbd._equations._parts import Parts as Parts
from jaxmbd._equations._parts import local_constraints as local_constraints
from jaxmbd._equations._symmetric import Solve as Solve
from jaxmbd._equations._symmetric import Symmetric as Symmetric
from jaxmbd._equations._symmetric import spd_solver as spd_solver
