"""Identification from measurements."""

from jaxmbd._fit._experiment import Experiment as Experiment
from jaxmbd._fit._fit import fit as fit
from jaxmbd._fit._identifiability import FitWarning as FitWarning
from jaxmbd._fit._identifiability import Undetermined as Undetermined
from jaxmbd._fit._parameters import Between as Between
from jaxmbd._fit._parameters import Free as Free
from jaxmbd._fit._parameters import Positive as Positive
from jaxmbd._fit._parameters import Real as Real
from jaxmbd._fit._result import Fit as Fit
