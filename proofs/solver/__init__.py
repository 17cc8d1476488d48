"""The machinery: symbolic integers, exploration of every path, solvers and CrossHair behind hard time limits."""
