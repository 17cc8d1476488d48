"""Formats: bytes to values and back, strictly.

Belongs here: the JSON reader and writer, the codec of dataclasses, profile files, atomic writes. May import: kernel.
"""
