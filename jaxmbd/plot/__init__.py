"""Pictures and animations of mechanisms with matplotlib; no function opens a window."""

from jaxmbd.plot._animate import animate as animate
from jaxmbd.plot._animate import save_animation as save_animation
from jaxmbd.plot._bode import bode as bode
from jaxmbd.plot._channels import channels as channels
from jaxmbd.plot._channels import fit as fit
from jaxmbd.plot._curves import curves as curves
from jaxmbd.plot._design import before_after as before_after
from jaxmbd.plot._design import convergence as convergence
from jaxmbd.plot._draw import draw as draw
from jaxmbd.plot._fit_report import fit_report as fit_report
from jaxmbd.plot._heat_map import heat_map as heat_map
from jaxmbd.plot._histogram import histogram as histogram
from jaxmbd.plot._modes import animate_mode as animate_mode
from jaxmbd.plot._modes import modes as modes
from jaxmbd.plot._parallel import parallel as parallel
from jaxmbd.plot._pareto import pareto as pareto
from jaxmbd.plot._posterior import posterior as posterior
from jaxmbd.plot._spy import spy as spy
from jaxmbd.plot._tornado import tornado as tornado
