"""INV-17: what a plan counts as available is what admission counts."""
