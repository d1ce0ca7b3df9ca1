"""Performance gates for LLM serving: a pytest plugin over the roofline."""

__version__ = "0.1.0"
