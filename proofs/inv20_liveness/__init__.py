"""INV-20: what complete readings say of a wave that its price refuses."""
