"""The width search keeps its contract for whatever prices, as long as they never fall with width within a regime."""
