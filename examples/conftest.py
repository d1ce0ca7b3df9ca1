"""The failing demonstrations run only when they are asked for: `pytest --llmroof-gpu=h100 examples/failing`."""

collect_ignore = ["failing", "recordings"]
