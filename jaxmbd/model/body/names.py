"""Which fields of a part are names: those that its class, or an abstract class that it implements, declares as `Name`.

A part is known by its name, and refers to bodies and coordinates by theirs; its law depends on none of them. So they
are taken out of the parts of one type before these are stacked. Any other text is data of the law, whatever the field
that holds it is called.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any, NoReturn, TypeAlias, get_args

from jaxmbd.errors import MechanismError

Name: TypeAlias = Annotated[str, "the name of a part, a body or a coordinate"]


@cache
def name_fields(kind: type) -> frozenset[str]:
    """The fields of a class that hold names; none if its objects are not parts of a mechanism."""
    declared = (item for base in kind.__mro__ for item in inspect.get_annotations(base).items())
    return frozenset(field for field, hint in declared if _is_name(hint) or any(map(_is_name, get_args(hint))))


def _is_name(hint: object) -> bool:
    return hint in (Name, tuple[Name, ...])


class NameUsedError(MechanismError):
    """A law depends on a name."""


_watched: ContextVar[bool] = ContextVar("watched", default=False)


@contextmanager
def names_watched() -> Iterator[None]:
    """While a law is traced to see whether it depends on names: what it compares with one raises."""
    token = _watched.set(True)
    try:
        yield
    finally:
        _watched.reset(token)


class UnnamedType(str):
    """What a law sees in place of a name: it can be shown, but nothing can be decided by it."""

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise NameUsedError(
            "A law must not depend on the name of its part, nor on those of the bodies and coordinates that the part "
            "refers to: it is evaluated for all parts of one type together, without their names. Give the class a "
            "field of its own for what the law decides by, such as kind: str = equinox.field(static=True)."
        )

    def __eq__(self, other: object) -> bool:
        is_name = isinstance(other, str) and not isinstance(other, UnnamedType)
        # Not always an error: JAX compares the static fields of parts, named ones among them, in its caches.
        return self._refuse() if is_name and _watched.get() else isinstance(other, UnnamedType)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(UnnamedType)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name) if name.startswith("_") else self._refuse()

    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __len__ = _refuse
    __getitem__ = __iter__ = _refuse  # pyright: ignore[reportAssignmentType]


UNNAMED = UnnamedType()
