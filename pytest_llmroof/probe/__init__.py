"""A load of one's own: one phase at a time against an OpenAI-compatible endpoint, as its client sees it."""
