"""A profile under arbitrary use: readings of every kind in any order, beside the bare list of what it was told."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pricing import contracts
from pricing.kernel.laws import LAWS
from pricing.kernel.price import allocated_bytes
from pricing.kernel.profile import Profile, observe
from pricing.kernel.quantities import ceil_div
from pricing.kernel.reading import Reading, ReadingKind
from pricing.kernel.requests import Workload
from pricing.kernel.wave import Wave
from pricing.testing import readings, waves

PACKED_PRICED = Workload.training(shortest_rows=64)


class ProfileMachine(RuleBasedStateMachine):
    """The profile beside the bare list of readings; every invariant is recomputed from that list."""

    def __init__(self) -> None:
        super().__init__()
        self.profile = Profile()
        self.told: list[Reading] = []

    def _observe(self, reading: Reading) -> None:
        before = self.profile
        self.profile = observe(before, reading)
        assert contracts.observing_only_ratchets(before, reading)
        if reading.packed_rows > 0:
            self.told.append(reading)

    @rule(reading=readings([ReadingKind.WHOLE_WAVE]))
    def whole_wave(self, reading: Reading) -> None:
        self._observe(reading)

    @rule(reading=readings([ReadingKind.FORWARD_ONLY]))
    def forward_only(self, reading: Reading) -> None:
        self._observe(reading)

    @rule(reading=readings([ReadingKind.SPLIT_CHILD]))
    def split_child(self, reading: Reading) -> None:
        self._observe(reading)

    @rule(reading=readings([ReadingKind.INTERRUPTED]))
    def interrupted(self, reading: Reading) -> None:
        self._observe(reading)

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def price_something(self, data: st.DataObject) -> None:
        wave = data.draw(waves(self.profile))
        for law in LAWS.values():
            assert contracts.price_never_falls_with_packed_rows(wave, 1, self.profile, law)
            assert contracts.retained_is_never_above_required(wave, self.profile, law)
            assert contracts.replay_is_identical(wave, self.profile, law)

    @invariant()
    def remembers_what_it_was_told(self) -> None:
        profile, told = self.profile, self.told
        rates = [ceil_div(max(0, r.peak_delta_bytes - r.output_bytes), r.packed_rows) for r in told]
        assert profile.peak_bytes_per_row == max(rates, default=0)
        assert profile.largest_packed_rows == max((r.packed_rows for r in told), default=0)
        assert profile.complete_readings == sum(r.is_complete for r in told)
        seeds = [index for index, r in enumerate(told) if r.is_complete]
        after_seed = told[seeds[0] + 1 :] if seeds else []
        assert profile.warm_bytes_per_row == max(rates[len(told) - len(after_seed) :], default=None)
        fits = [r for r in after_seed if r.is_complete]
        assert profile.warm_packed_rows == min((r.packed_rows for r in fits), default=None)
        assert profile.has_warm_fit == bool(fits)

    @invariant()
    def covers_what_it_was_told(self) -> None:
        seeds = [index for index, r in enumerate(self.told) if r.is_complete]
        for reading in self.told[seeds[0] + 1 :] if seeds else []:
            wave = Wave(
                packed_rows=reading.packed_rows,
                logical_rows=reading.logical_rows,
                grad_segments=reading.grad_segments,
                output_bytes=reading.output_bytes,
                workload=PACKED_PRICED,
            )
            for law in LAWS.values():
                assert allocated_bytes(wave, self.profile, law) >= reading.peak_delta_bytes


TestProfileMachine = ProfileMachine.TestCase
TestProfileMachine.settings = settings(max_examples=40, stateful_step_count=12)
pytestmark = pytest.mark.invariant("INV-8", "INV-9")
