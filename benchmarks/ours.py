"""The runs of this library."""

from benchmarks.measure import Run
from benchmarks.problems import Problem


def runs(problem: Problem) -> list[Run]:
    """This library's runs on a problem, from loose to tight settings.

    Each `Run` has `program=OURS` (from `benchmarks.measure`), the method as its `label` and the step or
    tolerance as its `setting`. Model building and compilation belong here, before the `Run` is made, and
    the seconds they took go into `build_seconds`. `solve()` starts from the problem's initial state, waits
    until the device has finished, and returns the final (x, y, theta) of all bodies as a NumPy array of shape
    (number of bodies, 3). `steps` is a number, or a function that is called after `solve`.
    """
    return []
