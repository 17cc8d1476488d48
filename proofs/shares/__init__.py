"""What a reading of a wave of several kinds teaches, and what it prices (assumption SHARES)."""
