"""The root of the repository: marks where pytest's root directory is."""
