"""Four pricing mistakes that were made in real planners, as they were made, refuted by the machinery of the proofs."""
