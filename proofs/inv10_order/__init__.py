"""INV-10: after the seed the profile does not depend on the order of readings."""
