"""Optimal design: dimensions of mechanisms that minimise an objective under constraints."""

from jaxmbd.optimal_design._design import Design as Design
from jaxmbd.optimal_design._design import Start as Start
from jaxmbd.optimal_design._design import design as design
from jaxmbd.optimal_design._excitation import Excitation as Excitation
from jaxmbd.optimal_design._excitation import ExcitationStart as ExcitationStart
from jaxmbd.optimal_design._excitation import excitation as excitation
from jaxmbd.optimal_design._limits import Limit as Limit
from jaxmbd.optimal_design._limits import Margin as Margin
from jaxmbd.optimal_design._multipliers import Multipliers as Multipliers
from jaxmbd.optimal_design._optimal_control import Control as Control
from jaxmbd.optimal_design._optimal_control import optimal_control as optimal_control
from jaxmbd.optimal_design._peak import ActiveSample as ActiveSample
from jaxmbd.optimal_design._peak import Peak as Peak
from jaxmbd.optimal_design._quantities import centre_of_mass as centre_of_mass
from jaxmbd.optimal_design._quantities import crank_margins as crank_margins
from jaxmbd.optimal_design._quantities import holding_effort as holding_effort
from jaxmbd.optimal_design._quantities import transmission_angle as transmission_angle
from jaxmbd.optimal_design._synthesis import Candidate as Candidate
from jaxmbd.optimal_design._synthesis import Synthesis as Synthesis
from jaxmbd.optimal_design._synthesis import synthesise as synthesise
from jaxmbd.optimal_design._tolerance import Tolerances as Tolerances
from jaxmbd.optimal_design._tolerance import tolerance_analysis as tolerance_analysis
