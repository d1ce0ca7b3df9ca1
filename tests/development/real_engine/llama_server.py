"""Serve a GGUF file by llama.cpp's own server, out of a wheel that has it built in: no compiler is needed.

    python llama_server.py MODEL NAME --port PORT
"""

from __future__ import annotations

import argparse
import importlib
import signal


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("name")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    # Before the server's threads are there, so that none of them takes a signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    llamacpp = importlib.import_module("xllamacpp")
    params = llamacpp.CommonParams()
    params.model.path, params.model_alias = given.model, {given.name}
    params.hostnames, params.port = ["127.0.0.1"], given.port
    params.endpoint_metrics = True
    params.n_ctx, params.n_parallel = 8192, 8
    # One thread: several wait for each other by spinning, which takes minutes where the cores have other work.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = llamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
