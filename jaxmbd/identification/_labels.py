"""Names of the numbers of parameters. Texts name a parameter of many numbers, such as a network, as a whole."""

import re
from collections.abc import Iterable, Sequence

LISTED = 8  # numbers of one parameter that texts and tables list one by one


def labels(name: str, size: int, components: Sequence[str] = ()) -> list[str]:
    """Return the labels of the numbers of a parameter, by the names of its components if they have some."""
    return [name] if size == 1 else [f"{name}[{k}]" for k in components[:size] or range(size)]


def owner(label: str) -> str:
    """Return the name of the parameter that a label belongs to."""
    return re.sub(r"\[\w+\]$", "", label)


def summed_up(names: Iterable[str]) -> dict[str, list[str]]:
    """Return labels by the text that stands for them: themselves; `"41 numbers of law"` for many of one parameter."""
    owned: dict[str, list[str]] = {}
    for name in names:
        owned.setdefault(owner(name), []).append(name)
    texts: dict[str, list[str]] = {}
    for name, found in owned.items():
        is_whole = len(found) > LISTED
        texts |= {f"{len(found)} numbers of {name}": found} if is_whole else {label: [label] for label in found}
    return texts
