"""Proofs about the shipped pricing kernel. `python -m proofs` runs them; README.md says what is trusted."""
