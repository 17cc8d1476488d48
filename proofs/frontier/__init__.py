"""The frontier law: one bound, one band, one lift; and by induction the minimum over any number of bands."""
