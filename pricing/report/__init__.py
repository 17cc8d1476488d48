"""The report: one page that says what happened in a run and what to do.

Belongs here: the figures of a run and their page. May import: records and what they may.
"""
