"""Gradients that a wave makes, priced two ways. Each way alone is never below the peak, so either may admit the wave.

Let a wave of n rows hold c(t, n) at the moment t, and g(t) of gradients that it made by then and leaves; G = g at the
end. Its peak is f(n) = max over t of c(t, n) + g(t).

* **Apart**: f(n) <= max c(t, n) + G. The price of the rows, learned from readings without what was left, with G held
  back beside it. A price of rows alone knows nothing of when a gradient is made, so it adds two moments that a wave may
  never reach together: rows are at their highest where backward begins, gradients at its end.
* **Together**: f itself is learned, from readings with what was left, under a signature of its own. What the laws
  assume holds for f as it does for the rows (SCALE: it never falls as n grows, and f(k * n) <= k * f(n) for k >= 1, for
  c does both and g, which does not depend on n, is at least 0). Nothing is held back beside it.

Together is the lower one for a wave like those that were read; apart for one of another size, since together scales
gradients as if they were rows. A reading counts as whole only where the wave found none of the gradients and made and
left each of them. It then bounds waves that make a part of them too: those that are there already lie under the
baseline. Whatever else was read can only raise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pricing.kernel.profile import Profile
from pricing.kernel.requests import Signature

TOGETHER: Final = ", with the gradients it makes"
"""What the topology of a signature ends with where gradients are learned together with rows."""


def together(signature: Signature) -> Signature:
    """The signature of the same waves, where what gradients take is part of the reading."""
    return signature if is_together(signature) else replace(signature, topology=signature.topology + TOGETHER)


def apart(signature: Signature) -> Signature:
    """The signature of the same waves, where gradients are held back beside the price."""
    return replace(signature, topology=signature.topology.removesuffix(TOGETHER))


def may_price_together(profile: Profile) -> bool:
    """Whether a wave whose rows alone were refused may be priced together with the gradients that it makes, if any.

    profile: what was learned of such waves together. Only where one was read whole: this way is no ground to try
    anything on. Also where no gradients are to be made: what covers both covers the rows.
    """
    return profile.complete_readings > 0


def is_together(signature: Signature) -> bool:
    return signature.topology.endswith(TOGETHER)
