"""INV-8: every reading is covered by the all-readings term, every one after the seed by the final price."""
