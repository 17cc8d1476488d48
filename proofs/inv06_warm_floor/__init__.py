"""INV-6: a wave below the warm floor is priced warm as if it were that large; no drop at the floor."""
