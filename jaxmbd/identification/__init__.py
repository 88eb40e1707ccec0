"""Identification: parameters of mechanisms from measurements, with their uncertainty."""

from jaxmbd.identification._experiment import Experiment as Experiment
from jaxmbd.identification._fit import Fit as Fit
from jaxmbd.identification._fit import fit as fit
from jaxmbd.identification._identifiability import FitWarning as FitWarning
from jaxmbd.identification._parameters import Bounded as Bounded
from jaxmbd.identification._parameters import Parameter as Parameter
from jaxmbd.identification._parameters import Positive as Positive
from jaxmbd.identification._parameters import Unbounded as Unbounded
