"""Statements that look right and are false of the shipped laws: each with a counterexample that replays on ints."""
