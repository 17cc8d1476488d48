"""The kernel: quantities, readings, profiles, laws and prices. This is what the proofs are about.

Belongs here: exact integer arithmetic and the types it works on. May import: the standard library and this room. No
floating point, no I/O, no clock, no state that outlives a call. Every check of that reads this folder's files, so a new
module is held to it without being listed anywhere.
"""
