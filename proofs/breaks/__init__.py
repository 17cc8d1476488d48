"""The kernel broken on purpose, one break at a time, and what of the proofs turns red: the proof suite's kill rate.

    python -m proofs.breaks            every break; table on screen, proofs/breaks/results.json written
    python -m proofs.breaks --only NAME

A break is one edit of the shipped source. It is made in a copy, and the named items of the proofs are run there: a
break is *caught* if one of them comes out otherwise than expected. Items must be green without any break first.
Definitions (constants, keys) have no theorem that could contradict them; those name the test of values that does.
"""
