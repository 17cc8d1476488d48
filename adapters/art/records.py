"""A bound rank's admissions and readings as decision records, the form that `records.replay` and the report read."""

from __future__ import annotations

from adapters.art.events import AdmittedPlan, LearnedReading
from pricing.kernel.law import Law
from pricing.kernel.quantities import Safety
from pricing.kernel.reading import Reading, ReadingKind
from pricing.records.record import DecisionRecord
from pricing.records.recorder import Recorder


class RecordedBy:
    """Feeds one `Recorder` from the events of one rank: a ticket an admission, closed by its last reading.

    A wave gives a forward reading and, where ART yields it to a caller, a second one that closes it. A forward that
    nothing follows (`dp_rank_forward`, a child of a split) is closed by the next admission or by `close`. Without
    footprints a record says what was held against the budget then: the price of what is allocated.
    """

    def __init__(self, recorder: Recorder, law: Law, safety: Safety, *, footprints: bool = False) -> None:
        self._recorder = recorder
        self._law = law
        self._safety = safety
        self._footprints = footprints
        self._ticket: DecisionRecord | None = None
        self._reading: Reading | None = None

    def __call__(self, event: AdmittedPlan | LearnedReading) -> None:
        if isinstance(event, AdmittedPlan):
            self.close()
            self._ticket = self._recorder.priced(
                event.wave,
                event.profile,
                available_bytes=event.available_bytes,
                signature=event.signature,
                law=self._law,
                safety=self._safety,
                budget=event.budget,
                footprints=self._footprints,
            )
            return
        if event.reading.kind is ReadingKind.OUT_OF_MEMORY:
            ticket, self._ticket, self._reading = self._ticket, None, None
            self._recorder.out_of_memory(ticket, requested_bytes=event.requested_bytes)
            return
        self._reading = event.reading
        if event.reading.kind in (ReadingKind.WHOLE_WAVE, ReadingKind.INTERRUPTED):
            self.close()

    def close(self) -> None:
        """The wave at hand is over: its record is finished with its last reading, or as abandoned without one."""
        ticket, reading = self._ticket, self._reading
        self._ticket = self._reading = None
        if ticket is not None:
            self._recorder.observed(ticket, reading, note="" if reading is not None else "ART gave no reading")
