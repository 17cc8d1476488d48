"""End to end: an admitted wave stays within its price on any device that satisfies the named assumptions."""
