"""Pages made of files at the top of the repository: what jaxmbd does, what has changed, and how to cite it."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
OF_THE_PAGES = re.compile(r"\]\(docs/")  # links to pages, as they are written at the top


def write(folder: Path) -> None:
    """Write the three pages."""
    folder.mkdir(parents=True, exist_ok=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {
        "features": f"# What it does\n{section(readme, 'What it does')}",
        "changes": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        "cite": citation(yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))),
    }
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(OF_THE_PAGES.sub("](/", text), encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands between a heading of the second level and the next one."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def citation(data: dict[str, object]) -> str:
    """The page that says how to cite this version."""
    authors = " and ".join(f"{{{author['name']}}}" for author in data["authors"])  # pyright: ignore
    fields = {
        "author": authors,
        "title": data["title"],
        "version": data["version"],
        "year": str(data["date-released"])[:4],
    }
    entry = "".join(f"  {key} = {{{value}}},\n" for key, value in fields.items())
    return f"""# Cite

{data["message"]}

```bibtex
@software{{jaxmbd,
{entry}}}
```

`CITATION.cff` at the top of the repository says the same; reference managers read it. The version is that of
`jaxmbd version`.
"""
