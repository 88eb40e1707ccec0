"""The links of a built site that lead nowhere: files that are missing, and anchors that their pages do not have."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

_LINK = re.compile(r"<(?:a|link|img|script|iframe)\b[^>]*?\s(?:href|src)=\"([^\"]*)\"")
_ANCHOR = re.compile(r"\s(?:id|name)=\"([^\"]*)\"")


@cache
def _anchors(page: Path) -> frozenset[str]:
    return frozenset(_ANCHOR.findall(page.read_text(encoding="utf-8")))


def broken(site: Path) -> Iterator[tuple[Path, str]]:
    """The pages with a broken link, and its target; links to other sites are not followed."""
    for page in sorted(site.rglob("*.html")):
        for link in sorted(set(_LINK.findall(page.read_text(encoding="utf-8")))):
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:|//", link):
                continue
            there = (page.parent / unquote(path.partition("?")[0])).resolve() if path else page
            has_anchors = (
                bool(anchor) and there.suffix == ".html" and there.parent.name != "play"
            )  # these read what follows #
            if not there.exists() or (has_anchors and unquote(anchor) not in _anchors(there)):
                yield page.relative_to(site), link
