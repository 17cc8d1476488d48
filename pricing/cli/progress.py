"""How far a long command is: on stderr, where somebody watches, from the second second on; nothing otherwise.

A pipe, a file or a log gets no bar, and `NO_COLOR` and a dumb terminal are respected (by the library that draws).
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final

from pricing.cli.output import console

QUIET_SECONDS: Final = 1.0
"""What is done by then needs no bar."""


class Progress:
    """What is being done, how much of it, and for how long already. To be used with `with`; prints nothing at its end.

    what: a word or two. total: the number of steps, None where nobody knows. The bar begins by itself after
    `QUIET_SECONDS` and goes on moving while no step ends.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        errors = console(stderr=True)
        self.watched = errors.is_terminal
        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24)]
        self._bar = Bar(*columns, MofNCompleteColumn(), TimeElapsedColumn(), console=errors, transient=True)
        self._task = self._bar.add_task(what, total=total)
        self._lock = threading.Lock()
        self._is_shown = self._is_over = False
        self._timer = threading.Timer(QUIET_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Progress:
        if self.watched:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._is_shown:
                self._bar.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_shown = True
                self._bar.start()

    def says(self, what: str) -> None:
        """Something else is being done now."""
        if self.watched:
            self._bar.update(self._task, description=what)

    def reached(self, steps: int) -> None:
        """So many steps are done."""
        if self.watched:
            self._bar.update(self._task, completed=steps)

    def advance(self) -> None:
        """One more step is done."""
        if self.watched:
            self._bar.advance(self._task)
