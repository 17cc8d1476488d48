"""INV-15: required is the higher of two prices, of what is allocated and of the footprint, by the same laws."""
