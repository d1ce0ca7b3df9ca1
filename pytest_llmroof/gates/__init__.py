"""The gate expression grammar, verdicts, and the YAML gate file."""
