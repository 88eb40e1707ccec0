"""Names of parts: other programs count names by kind, here all parts of a mechanism share one list of names."""

from itertools import chain, count

from jaxmbd.io._imported_model import Remarks
from jaxmbd.model.body.body import GROUND

# A sensor cannot have the names of time and energies; no other part needs them either.
_TAKEN = (GROUND, "t", "kinetic_energy", "potential_energy", "energy")


class Names:
    """The names given so far."""

    def __init__(self, remarks: Remarks) -> None:
        self.remarks = remarks
        self.given: set[str] = set(_TAKEN)

    def new(self, kind: str, name: str, line: int | None = None) -> str:
        """A valid name that no part has yet, as near to `name` as possible; another one is remarked.

        **Arguments:** `kind`, such as `"joint"`, which is appended where the name is taken; `name` and `line` of the
        file.
        """
        valid = "".join(c if c.isprintable() and c != "." else "_" for c in name).strip()
        chosen = self._free([valid] if valid else [], f"{valid}_{kind}" if valid else kind)
        if chosen != name:
            self.remarks.renamed(f"{kind} {name!r}", chosen, line)
        return chosen

    def made(self, kind: str, owner: str = "") -> str:
        """A name for a part that has none in the file: after its kind, and the part that it belongs to."""
        return self._free([], f"{owner}_{kind}" if owner else kind)

    def _free(self, wanted: list[str], stem: str) -> str:
        candidates = chain(wanted, [stem], (f"{stem}{number}" for number in count(2)))
        chosen = next(candidate for candidate in candidates if candidate not in self.given)
        self.given.add(chosen)
        return chosen
