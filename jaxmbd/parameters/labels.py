"""Names of the numbers of parameters. Texts name a parameter of many numbers, such as a network, as a whole."""

from collections.abc import Iterable, Mapping, Sequence

LISTED = 8  # numbers of one parameter that texts and tables list one by one


def labels(name: str, size: int, components: Sequence[str] = ()) -> list[str]:
    """Return the labels of the numbers of a parameter, by the names of its components if they have some."""
    return [name] if size == 1 else [f"{name}[{k}]" for k in components[:size] or range(size)]


def by_owner(names: Iterable[str], owners: Iterable[str]) -> dict[str, list[str]]:
    """Return labels by the parameter that they belong to."""
    owned: dict[str, list[str]] = {}
    for name, owner in zip(names, owners, strict=True):
        owned.setdefault(owner, []).append(name)
    return owned


def summed_up(owned: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return labels by the text that stands for them: themselves; `"41 numbers of law"` for many of one parameter.

    **Arguments:** the labels by the parameter that they belong to.
    """
    texts: dict[str, list[str]] = {}
    for name, found in owned.items():
        is_whole = len(found) > LISTED
        texts |= {f"{len(found)} numbers of {name}": found} if is_whole else {label: [label] for label in found}
    return texts
