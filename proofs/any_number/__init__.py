"""The frontier law's whole functions, for any number of bands, covers and bounds."""
