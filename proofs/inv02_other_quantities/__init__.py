"""INV-2: required never falls as logical rows, segments, outputs or the floor grow."""
