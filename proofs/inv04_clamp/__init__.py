"""INV-4: the all-readings term is B*P while L <= k*r*P, and B*ceil(L/(k*r)) beyond."""
