"""What the docstrings of classes say of their arguments, among it the units, so that both are written once."""

import inspect
import re


def argument_texts(text: str, names: list[str]) -> dict[str, str]:
    """What a docstring says of each argument, its unit among it: the part between semicolons that names it."""
    found = re.search(r"\*\*Arguments:\*\*(.*?)(\n\n|$)", text, re.DOTALL)
    clauses = re.split(r";\s+|\.\s+(?=[A-Z])", " ".join(found[1].split())) if found else []
    texts = {name: next((one for one in clauses if re.search(rf"`{name}\b", one)), None) for name in names}
    return {name: text.strip() for name, text in texts.items() if text}


def units_of(kind: type, field: str) -> list[str]:
    """The units that the docstring of a class gives a field: none, one, or two where it serves angles and lengths."""
    text = argument_texts(inspect.getdoc(kind) or "", [field]).get(field, "")
    said = re.search(rf"`{field}\b.*?`\[([^\]]+)\]`(?: or `\[([^\]]+)\]`)?", text)
    return [unit for unit in said.groups() if unit] if said else []
