"""INV-11: retained is never above required, and equal to it outside either window."""
