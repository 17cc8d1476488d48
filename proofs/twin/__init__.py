"""The vectorised twin gives the scalar price to the byte, and no intermediate of it leaves the corner that was checked."""
