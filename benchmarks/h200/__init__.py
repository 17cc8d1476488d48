"""Measurements that need a GPU: they make the evidence in `spec/evidence/`. README.md says which command made what."""
