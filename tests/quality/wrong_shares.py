"""Wrong shares: mistakes that make one signature stand for waves of different needs, as patches of the shipped code."""

from __future__ import annotations

from pricing.kernel import shares
from pricing.kernel.quantities import ceil_div
from pricing.kernel.shares import KindRows, RowsByKind, Share
from pricing.planner.batch import Batch, GroupKey
from pricing.planner.curve import Gathering
from tests.quality.wrong_kernels import WrongKernel


def _no_shares(rows: KindRows) -> tuple[Share, ...]:
    return ()


def _evidence_rounded_up(rows: int, numerator: int, denominator: int) -> int:
    return ceil_div(rows * numerator, denominator)


def _scale_of_the_next_class(rows: int, size_class: int) -> int:
    return shares.times_down(rows, *shares.class_scale(size_class + 1))


def _most_represented_kind(rows: RowsByKind, total_rows: int) -> int:
    return total_rows


def _one_kind_of_rows(self: GroupKey) -> str:
    return "rows"


def _gradient_rows_uncounted(self: Gathering) -> KindRows:
    labelled: dict[str, int] = {}
    for kind, rows in self._logical_kinds.items():
        mix = kind.partition(", ")[0]
        labelled[mix] = labelled.get(mix, 0) + rows
    return KindRows.of((), labelled.items())


def _requests_merged(self: Batch, group: int, mix: str) -> str:
    return self.groups[group].kind


def _wrong(name: str, mistake: str, owner: object, attribute: str, wrong: object) -> WrongKernel:
    return WrongKernel(name=name, mistake=mistake, caught_by="is_covered", patches={(owner, attribute): wrong})


WRONG_SHARES: tuple[WrongKernel, ...] = (
    _wrong("shares_ignored", "the signature holds kinds, whatever their shares", shares, "shares_of", _no_shares),
    _wrong("evidence_rounded_up", "a reading counts for a row it has not", shares, "times_down", _evidence_rounded_up),
    _wrong(
        "share_rounded_up",
        "a reading counts for the rows of the next smaller share",
        shares,
        "scaled_down",
        _scale_of_the_next_class,
    ),
    _wrong("all_rows_count", "a reading counts for all rows", shares, "_least_scaled", _most_represented_kind),
    _wrong(
        "gradient_rows_not_counted",
        "rows with and without gradients are one kind",
        Gathering,
        "kind_rows",
        _gradient_rows_uncounted,
    ),
    _wrong("group_kinds_merged", "rows of all groups are one kind", GroupKey, "kind", property(_one_kind_of_rows)),
    _wrong("requests_merged", "rows with labels and with logits are one kind", Batch, "kind_of", _requests_merged),
)
