"""What `jaxmbd.plot` exports: read by type checkers, and by `__init__.py`, which imports each name when it is used."""

from ._animate import animate as animate
from ._animate import save_animation as save_animation
from ._bode import bode as bode
from ._channels import channels as channels
from ._channels import fit as fit
from ._curves import curves as curves
from ._design import before_after as before_after
from ._design import convergence as convergence
from ._draw import draw as draw
from ._fit_report import fit_report as fit_report
from ._heat_map import heat_map as heat_map
from ._histogram import histogram as histogram
from ._modes import animate_mode as animate_mode
from ._modes import modes as modes
from ._parallel import parallel as parallel
from ._pareto import pareto as pareto
from ._posterior import posterior as posterior
from ._spy import spy as spy
from ._tornado import tornado as tornado
