"""The tables that the results of a design and of a synthesis have in common."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from jaxmbd.optimal_design._limits import Margin
from jaxmbd.optimal_design._peak import ActiveSample
from jaxmbd.printing import count_of, table, with_unit

SHOWN = 8  # starts, or samples, in a table


def variables_table(
    labels: Sequence[str], units: Sequence[str], numbers: np.ndarray, active_bounds: Iterable[str]
) -> str:
    """Return the values of the variables, and on which bound they lie."""
    sides = dict(text.rsplit(" ", 1) for text in active_bounds)
    rows = [["variable", "value", "bound"]]
    for label, unit, number in zip(labels, units, numbers, strict=True):
        rows.append([with_unit(label, unit), f"{number:.6g}", sides.get(label, "").strip("()")])
    return table(rows)


def constraints_table(constraints: Sequence[Margin]) -> list[str]:
    """Return the constraints with their margins, as a list that is empty without any."""
    heading = ["constraint", "value", "limits", "margin", ""]
    return [table([heading, *(margin.row() for margin in constraints)])] if constraints else []


def samples_table(samples: Sequence[ActiveSample], weights: np.ndarray) -> list[str]:
    """Return the samples that attain a peak with their multipliers, as a list that is empty without any."""
    if not samples:
        return []
    known = weights.tolist() if len(weights) == len(samples) else [None] * len(samples)
    heading = ["peak at", "sample" if samples[0].time is None else "time [s]", "value", "multiplier"]
    rows = [sample.row(weight) for sample, weight in zip(samples, known, strict=True)]
    more = len(samples) - SHOWN
    return ["\n".join([table([heading, *rows[:SHOWN]]), *[f"... and {count_of(more, 'sample')} more"] * (more > 0)])]


def starts_table(headings: Sequence[str], rows: Sequence[Sequence[str]], verdicts: Sequence[str]) -> str:
    """Return the first starts, and how many others have ended how; `verdicts`: of all of them."""
    others = Counter(verdicts[SHOWN:])
    more = [f"... and {count_of(n, 'start')} more: {verdict}" for verdict, n in others.items()]
    return "\n".join([table([headings, *rows[:SHOWN]], words=2), *more])
