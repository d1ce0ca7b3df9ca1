"""What runs only when it is asked for: the failing demonstrations, and the real server, whose CPU is no H100.

    pytest --llmroof-gpu=h100 examples/failing
    pytest examples/cpu
"""

collect_ignore = ["failing", "recordings", "cpu"]
