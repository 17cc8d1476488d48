"""Waves of a `TrainerRank` on the CPU, on true readings of the storage counter."""

from __future__ import annotations

from tests.adapters.trainer_rank.wave_contract import WaveContract


class TestWavesOnTheCpu(WaveContract):
    """Every clause of the contract."""
