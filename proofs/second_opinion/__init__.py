"""A second opinion of another kind on what cvc5 does not decide: every small input, by the kernel itself."""
