"""Measurements (value, interval, source), where the step time went, diagnosis and remedies."""
