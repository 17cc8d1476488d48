"""Width search: the largest width all of whose smaller widths are feasible.

Within a regime (fixed signature and eligibility) prices never fall with width, so the search gallops and bisects there;
regimes are taken in order. The set of widths so found is downward closed, which lets ranks agree on a minimum.
"""

from __future__ import annotations

from collections.abc import Callable

from pricing.planner.curve import Curve


def widest_feasible(curve: Curve, feasible: Callable[[int], bool]) -> int:
    """The largest width all of whose smaller widths are feasible; 0 if the narrowest is not.

    `feasible` must be monotone within each regime of the curve. Asks about O(log width) widths a regime, and grows the
    curve to less than twice the answer.
    """
    answer = 0
    while answer < curve.limit:
        first = answer + 1
        if not curve.reaches(first) or not feasible(first):
            return answer
        answer, step = first, 1
        while True:
            wanted = min(answer + step, curve.limit)
            width = curve.last_width_of_regime(first, wanted)
            if width == answer:
                break
            if not feasible(width):
                return _bisect(answer, width, feasible)
            answer, step = width, 2 * step
    return answer


def _bisect(low: int, high: int, feasible: Callable[[int], bool]) -> int:
    """`low` is feasible, `high` is not; between them feasibility changes once."""
    while high - low > 1:
        middle = (low + high) // 2
        if feasible(middle):
            low = middle
        else:
            high = middle
    return low
