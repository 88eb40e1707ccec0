"""Comparison of what an example prints with what stands below it."""

import math
import re

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")
DIGITS = 2.0  # of the last printed digit: other versions of the libraries round otherwise


def same(printed: str, written: str) -> bool:
    """Whether two texts have the same words, and numbers that agree up to rounding of their last digits."""
    if NUMBER.sub("", printed) != NUMBER.sub("", written):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(written), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0, abs_tol=DIGITS * last_digit(b)) for a, b in pairs)


def last_digit(number: str) -> float:
    """The value of one unit in the last place of a number with decimals; whole numbers must be equal."""
    mantissa, _, exponent = number.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - decimals) if decimals or exponent else 0.0
