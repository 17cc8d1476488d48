"""Small wrong changes to the kernel, and which tests notice them. README.md says how to run it and what came of it."""
