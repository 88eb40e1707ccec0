from pathlib import Path
def write(folder: Path) -> None:
    (folder / "validation.md").write_text("# Validation\n", encoding="utf-8")
