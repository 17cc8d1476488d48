"""The vectorised twin gives the scalar price to the byte, and no intermediate of it is above the checked corner's."""
