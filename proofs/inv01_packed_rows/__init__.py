"""INV-1: required never falls as packed rows grow, packed-priced or not."""
