"""What a wave teaches of a head in chunks (assumption LABELS)."""
