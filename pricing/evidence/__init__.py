"""Evidence: recorded traces and what they say about the laws.

Belongs here: reading traces, backtests, tests of assumption SCALE. May import: the kernel, formats.
"""
