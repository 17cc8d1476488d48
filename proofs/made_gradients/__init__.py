"""Gradients that a wave makes, priced apart from its rows or together with them: either price covers the wave."""
