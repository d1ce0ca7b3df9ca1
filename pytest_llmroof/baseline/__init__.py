"""Earlier reports as baselines: reading them, finding the windows that match, and what changed since.

Pure functions over report documents; the one thing read is files.
"""
