"""A process that writes records and wave lines into a spool until it is killed.

It writes a line to descriptor 1 once it has begun, so that its killer knows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

from pricing.records.metrics import WaveSummary
from pricing.records.record import Event, StructureFacts
from pricing.records.recorder import record_of_price
from pricing.records.spool import Spool
from tests.making import a_reading, a_wave, learned

MAX_FILES = 24
MAX_BYTES = 1 << 20


def main(folder: str, count: int) -> None:
    spool = write(folder, count, begun=lambda: os.write(1, b"begun\n"))
    os.write(1, f"{spool.written} {spool.dropped} {spool.last_failure}\n".encode())


def write(folder: str, count: int, begun: Callable[[], object] = lambda: None) -> Spool:
    """Write `count` records and wave lines, small and bulky ones; `begun` is called before the first."""
    spool = Spool(folder, max_files=MAX_FILES, max_bytes=MAX_BYTES, max_record_bytes=1 << 17)
    profile = learned([a_reading(1_000, 300_000_000)] * 3)
    record = record_of_price(a_wave(5_000, 20_000, 7), profile, available_bytes=1 << 33, name="writer")
    bulk = StructureFacts(request_rows=tuple(range(6_000)), segment_rows=(), segment_parents=())
    begun()
    for number in range(count):
        event = Event.REFUSED if number % 5 == 0 else Event.OBSERVED
        spool.write(replace(record, index=number, event=event, structure=bulk if number % 3 == 0 else None))
        spool.append_wave(WaveSummary.of(replace(record, index=number)).line())
    return spool


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 60)
