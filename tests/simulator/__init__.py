"""A simulator of serving engines, to hold the product against a truth that it did not compute itself.

Nothing here imports the product, but for ``assessed.py``, which hands it files. Data flows one way:

    gpus, nets      datasheets, published reach of kernels, configurations of models
    physics         bytes and FLOPs of a step, its floor, what healthy kernels take
    plan            everything about one window: hardware, traffic, engine, health, and the causes that are planted
    timing          how long a step takes, by parts
    load            requests, and when they come
    scheduler       continuous batching: chunked prefill, prefix hits, preemption, speculation
    run             what happened, step by step and request by request
    truth           where the time went, on the clock of the latencies that engines count
    draw            random plans with a cause of a random size
    pages, ..._page, bench_result, timeline
                    the same run as engines, exporters, load generators and profilers tell of it
    assessed        the files of a window, read and diagnosed by the product
    judged          what it said held against the truth
"""
