"""INV-16: what ran out of memory is never admitted again into as few bytes, nor what is as large."""
