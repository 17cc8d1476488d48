"""The planner: from requests, profiles, a budget and a law to waves that fit.

Belongs here: prefix trees, curves, width search, split ladder, budgets, agreement of ranks, refusals. May import: the
kernel. Pure; numpy is used where it is installed.
"""
