"""Identification: parameters of mechanisms from measurements, with their uncertainty."""

from jaxmbd.identification._experiment import Experiment as Experiment
from jaxmbd.identification._fit import fit as fit
from jaxmbd.identification._fit import fit_many as fit_many
from jaxmbd.identification._fit import predict as predict
from jaxmbd.identification._identifiability import FitWarning as FitWarning
from jaxmbd.identification._instruments import Instrument as Instrument
from jaxmbd.identification._parameters import Parameter as Parameter
from jaxmbd.identification._priors import LogNormal as LogNormal
from jaxmbd.identification._priors import Normal as Normal
from jaxmbd.identification._problem import Problem as Problem
from jaxmbd.identification._problem import Unknowns as Unknowns
from jaxmbd.identification._ranges import Bounded as Bounded
from jaxmbd.identification._ranges import Box as Box
from jaxmbd.identification._ranges import Positive as Positive
from jaxmbd.identification._ranges import Unbounded as Unbounded
from jaxmbd.identification._result import Fit as Fit
from jaxmbd.identification._result import Prediction as Prediction
