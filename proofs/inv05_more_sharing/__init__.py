"""INV-5: learning more sharing alone never cheapens a plan within k times the older sharing."""
