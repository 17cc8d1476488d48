"""Statistics by dotted name, from the allocator's nested form and from the flat one."""

from __future__ import annotations

from adapters.torch_memory.counter import figure

NESTED = {"allocated_bytes": {"all": {"current": 5, "peak": 7}}, "num_ooms": 2}
FLAT = {"allocated_bytes.all.current": 5, "allocated_bytes.all.peak": 7, "num_ooms": 2}


def test_both_forms_give_the_same_figures() -> None:
    for figures in (NESTED, FLAT):
        assert figure(figures, "allocated_bytes.all.peak") == 7
        assert figure(figures, "num_ooms") == 2


def test_what_a_device_does_not_keep_reads_zero() -> None:
    for figures in (NESTED, FLAT, {}):
        assert figure(figures, "active_bytes.all.peak") == 0
        assert figure(figures, "num_ooms.all.peak") == 0
