"""Records: every decision kept, and decided again.

Belongs here: decision records, the recorder and its spool, replay, metrics. May import: kernel, planner, formats.
"""
