"""End to end for the frontier law: an admitted wave stays within its price on any device that satisfies SCALE."""
