"""INV-18: each out-of-memory error raises the price by 1/16 at least, so that few come before what runs."""
