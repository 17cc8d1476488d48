"""Formats: bytes to values and back, strictly.

Belongs here: strict JSON text, the one reader and writer of its values, profile files, atomic writes. May import:
kernel.
"""
