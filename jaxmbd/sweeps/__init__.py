"""Sweeps: a function of named numbers for all variants of a design, with a store that survives interruptions."""

from jaxmbd.sweeps._explanation import Explanation as Explanation
from jaxmbd.sweeps._pareto import pareto_front as pareto_front
from jaxmbd.sweeps._samples import Normal as Normal
from jaxmbd.sweeps._samples import Uniform as Uniform
from jaxmbd.sweeps._samples import latin_hypercube as latin_hypercube
from jaxmbd.sweeps._samples import sobol as sobol
from jaxmbd.sweeps._samples import tolerances as tolerances
from jaxmbd.sweeps._sensitivity import LocalSensitivities as LocalSensitivities
from jaxmbd.sweeps._sensitivity import SensitivityIndices as SensitivityIndices
from jaxmbd.sweeps._sensitivity import local_sensitivities as local_sensitivities
from jaxmbd.sweeps._sensitivity import sensitivity_indices as sensitivity_indices
from jaxmbd.sweeps._space import grid as grid
from jaxmbd.sweeps._sweep import Sweep as Sweep
from jaxmbd.sweeps._sweep import SweepWarning as SweepWarning
from jaxmbd.sweeps._sweep import read_store as read_store
from jaxmbd.sweeps._sweep import sweep as sweep
