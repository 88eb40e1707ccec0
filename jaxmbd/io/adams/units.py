"""The units of an Adams dataset, as what 1 means in SI units."""

from dataclasses import dataclass

from jaxmbd.io.adams.statements import Statement

_POUND, _FOOT, _GRAVITY = 0.45359237, 0.3048, 9.80665  # [kg], [m], [m/s²]: exact by definition
_FORCES = {
    "NEWTON": 1.0, "KNEWTON": 1e3, "MILLINEWTON": 1e-3, "CENTINEWTON": 1e-2, "MEGANEWTON": 1e6, "DYNE": 1e-5,
    "KILOGRAM_FORCE": _GRAVITY, "POUND_FORCE": _POUND * _GRAVITY, "KPOUND_FORCE": 1e3 * _POUND * _GRAVITY,
    "OUNCE_FORCE": _POUND * _GRAVITY / 16, "POUNDAL": _POUND * _FOOT,
}  # fmt: skip
_MASSES = {
    "KILOGRAM": 1.0, "GRAM": 1e-3, "TONNE": 1e3, "MILLIGRAM": 1e-6, "POUND_MASS": _POUND, "KPOUND_MASS": 1e3 * _POUND,
    "OUNCE_MASS": _POUND / 16, "SLUG": _POUND * _GRAVITY / _FOOT, "SLINCH": _POUND * _GRAVITY / (_FOOT / 12),
}  # fmt: skip
_LENGTHS = {
    "METER": 1.0, "MILLIMETER": 1e-3, "CENTIMETER": 1e-2, "KILOMETER": 1e3, "FOOT": _FOOT, "INCH": _FOOT / 12,
    "MILE": 5280 * _FOOT, "MICROMETER": 1e-6, "YARD": 3 * _FOOT,
}  # fmt: skip
_TIMES = {"SECOND": 1.0, "MILLISECOND": 1e-3, "MINUTE": 60.0, "HOUR": 3600.0}
_SYSTEMS = {
    "MKS": ("NEWTON", "KILOGRAM", "METER", "SECOND"), "CGS": ("DYNE", "GRAM", "CENTIMETER", "SECOND"),
    "FPS": ("POUND_FORCE", "SLUG", "FOOT", "SECOND"), "IPS": ("POUND_FORCE", "SLINCH", "INCH", "SECOND"),
}  # fmt: skip
_KEYS = {"FORCE": _FORCES, "MASS": _MASSES, "LENGTH": _LENGTHS, "TIME": _TIMES}


@dataclass(frozen=True)
class Units:
    """`force` [N], `mass` [kg], `length` [m] and `time` [s] that 1 means."""

    force: float = 1.0
    mass: float = 1.0
    length: float = 1.0
    time: float = 1.0


def units_of(statement: Statement) -> Units:
    """The units of a UNITS statement; those that it does not name are SI units.

    **Raises:** `MechanismError` for a unit that is not known.
    """
    statement.complete(*_KEYS, "SYSTEM", "UCF")
    found = {"FORCE": "NEWTON", "MASS": "KILOGRAM", "LENGTH": "METER", "TIME": "SECOND"}
    if system := statement.text("SYSTEM").upper():
        if system not in _SYSTEMS:
            raise statement.error(f"SYSTEM must be one of {', '.join(_SYSTEMS)}, got {system[:40]!r}.")
        found = dict(zip(_KEYS, _SYSTEMS[system], strict=True))
    # A unit is a word, which no number follows: it is the value of its key.
    found |= {key: statement.text(key).upper() for key in _KEYS if key in statement.values}
    for key, table in _KEYS.items():
        if found[key] not in table:
            raise statement.error(f"{key} must be one of {', '.join(table)}, got {found[key][:40]!r}.")
    if "UCF" in statement.values and statement.numeral("UCF") <= 0:
        raise statement.error("UCF must be positive.")
    return Units(*(table[found[key]] for key, table in _KEYS.items()))
