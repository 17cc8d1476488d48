"""Footprints under the frontier law, for any number of bands and readings: INV-15, INV-16 and INV-18 whole."""
