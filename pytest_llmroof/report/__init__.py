"""One report document, and its renderings."""
