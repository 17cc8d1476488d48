"""Every public name of 0.1.0 is still there, under the same door.

The lists are 0.1.0's own `__all__`, written down once. A name may be added to a door; none may leave it.
"""

from __future__ import annotations

import importlib
from typing import Final

import pytest

DOORS: Final[dict[str, str]] = {
    "pricing": """
        DEFAULT_LAW DEFAULT_SAFETY GIB LAWS NO_RECOMPUTE ONE_LAYER_FULL BindingTerm FileFormatError Ineligible
        InvalidReadingError Law Price PricingError Profile ProfileError QuantityError Reading ReadingKind RecomputeMode
        RecurrentGeometry RequestGroup RequestSpec Safety SafetyError Sharing Signature Term UnknownLawError
        UnknownReadingKindError Wave WaveError Workload find_law ineligibility mix_key observe price required_bytes
        retained_bytes segment_state_bytes signature_of workload_of
    """,
    "pricing.plan": """
        Batch BatchError BatchPlan GroupKey Item PlanRequest ProbeTest Refusal RungTried Setting SplitChild Verdict
        WavePlan WaveShape WidthTried plan_batch plan_wave
    """,
    "pricing.recorder": "Handoff Recorder Triggers record_of_plan record_of_price",
    "adapters.trainer_rank": """
        AdmissionError AdmittedOutOfMemoryError HuggingFaceDecoder MicroBatch ModelFacts PackedModel PackedRows
        ProfileStore Request RequestError RequestOutputs TrainerRank UnsupportedModelError WaveOverError
        WaveRefusedError WaveStats bind_model
    """,
    "adapters.torch_memory": """
        AcceleratorCounter AcceleratorMemory Admission BudgetSampleError BudgetSampler Flaw Interval MemoryCounter
        MemorySample MemorySource MeterError MeterMisuseError Observation OwnershipError PeakMeter Refusal Role
        SimulatedMemory StorageCounter environment_facts meter_for sampler_for
    """,
    "adapters.torch_distributed": "DistributedQuorum QuorumError QuorumLostError QuorumMismatchError RankFailedError",
    "adapters.art": """
        SUPPORTED_VERSION Admission ArtBindingError ArtInterfaceError Binding Observation Records bind unbind
    """,
    "pricing.testing": """
        counts growths histories incomplete_readings reachable_profiles readings request_groups request_specs safeties
        seeded_profiles waves waves_and_profiles workloads
    """,
}


@pytest.mark.parametrize("door", DOORS)
def test_no_public_name_of_0_1_0_is_lost(door: str) -> None:
    module = importlib.import_module(door)
    names = DOORS[door].split()

    assert len(set(names)) == len(names) > 4
    assert [name for name in names if name not in module.__all__] == []
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("door", DOORS)
def test_a_door_gives_what_it_lists(door: str) -> None:
    module = importlib.import_module(door)

    assert [name for name in module.__all__ if not hasattr(module, name)] == []
