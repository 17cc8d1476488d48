"""A seeded fuzzer over every reader, the command line, saving, the spool and the ranks. `make fuzz` runs it in full."""
