"""INV-19: merging profiles is commutative, associative and idempotent."""
