"""INV-14: same inputs, same bytes: a price replayed from its record is bit-identical."""
