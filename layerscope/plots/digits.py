"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, with an exponent only where it saves room.

    >>> significant(4.4712), significant(0.5), significant(123456.0), significant(-0.0)
    ('4.47', '0.500', '123456', '0')
    >>> significant(float("nan"))
    '–'
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if 10**digits <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".").replace("-", "−")


def fixed(value: float, decimals: int = 3) -> str:
    """``value`` with ``decimals`` decimals, never a negative zero.

    >>> fixed(0.79), fixed(-0.0001), fixed(float("nan"))
    ('0.790', '0.000', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


def decimals_of(values: Iterable[float], digits: int = 3) -> int:
    """How many decimals show the largest of ``values`` with ``digits`` significant digits (at most 6).

    >>> decimals_of([0.01, 4.5]), decimals_of([305.0]), decimals_of([0.0123, float("nan")])
    (2, 0, 4)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 0
    return min(6, max(0, digits - 1 - math.floor(math.log10(largest))))
