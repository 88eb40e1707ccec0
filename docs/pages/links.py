"""Names in the text of a page, `simulate` or `pl.Body`, become links to the reference."""

import re
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes

from docs.pages.public_names import modules

SHORT = {"mbd": "jaxmbd", "pl": "jaxmbd.planar", "sp": "jaxmbd.spatial"}  # as the examples import them
_NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\(.*\))?$", re.DOTALL)


@cache
def targets() -> dict[str, str]:
    """The full names by which the reference knows the words of a text, short ones included.

    Words that stand for several names are left out, except for parts that both spaces have: these lead to the plane.
    Lower-case words are names only if the package itself exports them; `rod` or `point` may be anything.
    """
    found: dict[str, set[str]] = {}
    for module, names in modules().items():
        for name in names:
            path = name.documented
            found.setdefault(name.path, set()).add(path)
            for short in (key for key, value in SHORT.items() if value == module):
                found.setdefault(f"{short}.{name.name}", set()).add(path)
            if module == "jaxmbd" or name.name[0].isupper() or "_" in name.name:
                found.setdefault(name.name, set()).add(path)
    both = {word: min(paths) for word, paths in found.items() if _differ_by_space(paths)}
    return {word: next(iter(paths)) for word, paths in found.items() if len(paths) == 1} | both


def _differ_by_space(paths: set[str]) -> bool:
    return len({path.replace(".spatial.", ".planar.") for path in paths}) == 1


def link_names(app: Any, doctree: Any) -> None:
    """Replace each name in fixed-width type by a link; called by Sphinx with each page that it has read."""
    page = app.env.docname.rpartition("/")[2]
    for literal in list(doctree.findall(nodes.literal)):
        found = _NAME.match(literal.astext())
        if found is None or isinstance(literal.parent, nodes.reference | nodes.title | addnodes.pending_xref):
            continue
        target = targets().get(found[1])
        if target is not None:
            in_space = target.replace(".planar.", ".spatial.")
            target = in_space if page.startswith("jaxmbd.spatial") and in_space in targets() else target
            link = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=target, refexplicit=True, refwarn=True,
                refdoc=app.env.docname,
            )  # fmt: skip
            literal.replace_self(link)
            link += literal
