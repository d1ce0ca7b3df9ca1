"""The pytest side: every hook hands on in a line or two."""
