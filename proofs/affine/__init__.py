"""Assumption AFFINE as a theorem: why pricing small waves at the warm floor is sound, and where it stops being so."""
