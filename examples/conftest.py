"""What runs only when asked for: failing demonstrations, a release rehearsal, the real server (its CPU is no H100).

    pytest --llmroof-gpu=h100 examples/failing
    pytest examples/cpu
    pytest --llmroof-gpu=h100 examples/release --llmroof-baseline=examples/release/last-release.json
"""

collect_ignore = ["failing", "recordings", "cpu", "release"]
