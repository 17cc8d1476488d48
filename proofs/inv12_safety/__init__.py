"""INV-12: for P >= 1, sigma * (O + compute) <= required < that + 1."""
