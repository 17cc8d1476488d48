"""INV-7: the warm fit never raises a price; a profile without it prices as before."""
