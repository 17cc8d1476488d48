"""cvc5 on the same obligations, in a child process that is killed when it overruns.

The child reads one SMT-LIB script a line (as JSON) and answers `unsat`, `sat` or `unknown`. cvc5 has its own time
limit, which it does not always keep inside preprocessing; hence the hard kill.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from dataclasses import replace
from types import TracebackType

from proofs.solver.decide import Verdict

GRACE_S = 2.0
"""How long beyond its own limit the child may take before it is killed."""


class SecondOpinion:
    """A cvc5 child. Use as a context manager; one script at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._decided: dict[str, Verdict] = {}

    def __enter__(self) -> SecondOpinion:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def decide(self, script: str, timeout_s: float) -> Verdict:
        """cvc5's verdict: "proven" for unsat, "refuted" for sat, "unknown" for neither, a time-out or a crash."""
        if script in self._decided:
            return self._decided[script]
        child = self._running()
        assert child.stdin is not None and child.stdout is not None, "the child has pipes"
        began = time.perf_counter()
        child.stdin.write(json.dumps([script, timeout_s]) + "\n")
        child.stdin.flush()
        answered, _, _ = select.select([child.stdout], [], [], timeout_s + GRACE_S)
        answer = child.stdout.readline().strip() if answered else ""
        seconds = time.perf_counter() - began
        if not answer:
            self._kill()
        verdict = Verdict({"unsat": "proven", "sat": "refuted"}.get(answer, "unknown"), seconds)
        if verdict.outcome != "unknown":  # the same question is often asked by several theorems
            self._decided[script] = replace(verdict, seconds=0.0)
        return verdict

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "proofs.solver.second_opinion"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert self._child.stdout is not None, "the child has pipes"
            self._child.stdout.readline()  # it says "ready" once cvc5 is imported, so that this is not timed
        return self._child

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None


def answer(script: str, timeout_s: float) -> str:
    """cvc5's answer to one script, in this process."""
    import cvc5

    terms = cvc5.TermManager()
    solver = cvc5.Solver(terms)
    solver.setOption("tlimit-per", str(int(timeout_s * 1000)))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "obligation")
    symbols, said = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        said = command.invoke(solver, symbols).strip() or said
    return said


def _serve() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            said = answer(*json.loads(line))
        except RuntimeError:
            said = "unknown"
        print(said or "unknown", flush=True)


if __name__ == "__main__":
    _serve()
