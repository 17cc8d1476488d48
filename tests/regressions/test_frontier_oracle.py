"""Rows a wave against an oracle that knows the machine: a short run of the benchmark, with its promise."""

from __future__ import annotations

import pytest

from benchmarks import frontier_oracle


@pytest.mark.parametrize("noise_per_mille", [0, 10, 30])
def test_from_the_tenth_wave_on_waves_are_almost_as_wide_as_the_oracles(noise_per_mille: int) -> None:
    for row in frontier_oracle.measure(40, range(3), [noise_per_mille]):
        assert row["of_oracle"]["frontier"] >= 0.95, row
        assert row["of_oracle"]["warm"] < 0.75, row
        assert row["under"]["frontier"] == row["out_of_memory"]["frontier"] == 0, row
