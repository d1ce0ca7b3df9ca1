"""Damaged inputs by the million, against every reader: none may crash, hang, fill the memory, or turn a gate green.

    python tests/fuzz/run.py --inputs=1000000 --processes=2

    seeds          whole inputs of every kind: made by the helpers of the tests, and from tests/data
    gatefiles      gate files that hold every key
    fleet          answers of a Prometheus server, without one
    mutation       from a seed to an input: bytes, tokens, lines and numbers changed, by a seeded random generator
    targets        what reads them, and what each may answer: a result that holds, or one of the package's own errors
    damage         windows that fail their gates, damaged: none of the gates may pass of that
    worker         one process with bounded memory: feeds inputs, and keeps those that found a fault
    run            the command: processes, seconds, figures
    guided         the same targets under a coverage-guided fuzzer, where one is installed (pip install atheris)
    test_slice     some inputs of every target, the same in every run
    test_structured  well-formed inputs of senseless values
"""
