"""INV-9: learning only ratchets; incomplete readings never complete a fit and never lower a price."""
