"""Reachable profiles: the invariant that every other theorem assumes, shown to hold at the start and to be kept."""
