"""Everything that turns profiler exports into one canonical timeline or kernel table."""
