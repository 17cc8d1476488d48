"""The specification: documents for reviewers, and an executable model of the laws."""
