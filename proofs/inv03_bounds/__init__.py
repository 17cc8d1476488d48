"""INV-3: price(full sharing, 0 segments) <= price(any layout) <= price(no sharing, two segments a request)."""
