"""Several versions of the site side by side: `python -m docs.pages.versions FOLDER` lists the builds in a folder.

Each is a folder named by its version, `0.2.0`, or `main` for what has not been released. `versions.json` beside them
makes the choice in the sidebar of each; `index.html` leads to the newest release.
"""

import json
import re
import sys
from pathlib import Path

_REDIRECT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={newest}/index.html">\n'


def write(folder: Path) -> list[str]:
    """Write the list of the versions in a folder, the newest release first and what is no release last; return it."""
    names = [path.parent.name for path in folder.glob("*/index.html")]
    versions = sorted(names, key=_order, reverse=True)
    if not versions:
        raise SystemExit(f"{folder} holds no builds: there is no {folder}/*/index.html")
    (folder / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    (folder / "index.html").write_text(_REDIRECT.format(newest=versions[0]), encoding="utf-8")
    return versions


def _order(name: str) -> tuple[bool, list[int], str]:
    is_release = re.fullmatch(r"v?\d+(\.\d+)*", name) is not None
    return is_release, [int(number) for number in re.findall(r"\d+", name)] if is_release else [], name


if __name__ == "__main__":
    print(*write(Path(sys.argv[1])))
