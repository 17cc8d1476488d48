"""INV-13: inactive requests change nothing; a short request changes eligibility, never identity."""
