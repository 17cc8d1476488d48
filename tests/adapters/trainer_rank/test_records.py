"""What a real trainer leaves behind: every decision on record, and each record replays to the byte under every law."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.torch_memory import PeakMeter
from adapters.trainer_rank import AdmittedOutOfMemoryError, WaveRefusedError
from pricing import LAWS, find_law
from pricing.records.metrics import Metrics, wandb_logger
from pricing.records.record import DecisionRecord, Event
from pricing.records.record_file import read_record
from pricing.records.recorder import Recorder, Triggers
from pricing.records.replay import replay
from pricing.records.spool import record_paths
from pricing.report.findings import Severity, findings_of
from pricing.report.run_report import read_run
from tests.adapters.trainer_rank.wave_contract import run_out_of_memory
from tests.adapters.trainer_rank.waves import MIB, group, groups, loss_of, rank_on, train


def read_all(folder: Path) -> list[DecisionRecord]:
    return [read_record(path).record for path in record_paths(folder)]


@pytest.mark.parametrize("law", sorted(LAWS))
def test_every_decision_of_a_run_replays_to_the_byte(meter: PeakMeter, tmp_path: Path, law: str) -> None:
    seen: list[Metrics] = []
    recorder = Recorder(
        name="rank0", spool=tmp_path, metrics=[wandb_logger(seen.append)], triggers=Triggers(everything=True)
    )
    rank = rank_on(meter, recorder=recorder, law=find_law(law))
    waves = [wave for _ in range(3) for wave in train(rank, groups(3))]
    with pytest.raises(AdmittedOutOfMemoryError):
        for wave in rank.forward_micro_batches([group(9)]):
            with wave:
                loss_of(wave.outputs).backward()
                run_out_of_memory(meter)

    assert recorder.failures == 0, recorder.last_failure
    records = read_all(tmp_path)
    assert [record.event for record in records] == [Event.OBSERVED] * len(waves) + [Event.OUT_OF_MEMORY]
    assert all(replay(record).is_equal for record in records)
    assert {record.verdict for record in records} >= {"cold_start", "run"}
    for wave, record, metrics in zip(waves, records, seen, strict=False):
        closing = wave.stats.closing
        assert closing is not None and closing.reading is not None and record.observed is not None
        assert record.required_bytes == wave.stats.plan.required_bytes == metrics["memory/estimate_bytes"]
        assert record.observed.reading == closing.reading
        assert metrics["memory/observed_bytes"] == closing.reading.peak_delta_bytes
    assert records[-1].failure is not None and records[-1].required_bytes <= records[-1].available_bytes


def test_a_refused_item_is_on_record_with_what_was_tried(meter: PeakMeter, tmp_path: Path) -> None:
    rank = rank_on(meter, recorder=Recorder(spool=tmp_path), memory_bytes=64 * MIB, law="warm")
    for _ in range(3):
        train(rank, [group(0)])
    with pytest.raises(WaveRefusedError):
        train(rank, [group(1, prompt=4_000, rollouts=3)])
    refused = [record for record in read_all(tmp_path) if record.event is Event.REFUSED]
    assert len(refused) == 1 and refused[0].rungs and refused[0].refusal is not None
    assert replay(refused[0]).is_equal
    assert findings_of(read_run(tmp_path))[0].severity is Severity.REFUSED


def test_nothing_is_written_by_default(meter: PeakMeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(rank_on(meter), groups(2))
    assert list(tmp_path.iterdir()) == []
