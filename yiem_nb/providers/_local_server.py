"""The child process that serves the embedded model; started by `local`, never imported.

It reads one line of JSON from its standard input (its settings, the key among them, which so is in no
process list), starts llama.cpp's own server on the loopback interface and says where. When its input
ends or its parent is another, whoever started it is gone, however that came about, and it ends too.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading


def main() -> None:
    """Serve until standard input ends."""
    settings = json.loads(sys.stdin.readline())
    # From the beginning: it may be left alone while the weights are being read.
    watch = threading.Thread(target=_end_with, args=(settings["parent"],), daemon=True)
    watch.start()
    # llama.cpp talks on stdout; what we say there must be alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["weights"]
    parameters.model_alias = {settings["alias"]}
    parameters.n_ctx = settings["context"]
    parameters.n_parallel = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [settings["key"]]
    parameters.cors_origins = settings["origins"]
    parameters.ui = False
    parameters.warmup = False
    parameters.cache_ram_mib = 0
    parameters.cpuparams.n_threads = settings["threads"]
    parameters.cpuparams_batch.n_threads = settings["threads"]
    server = xllamacpp.Server(parameters)
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    watch.join()


def _end_with(parent: int) -> None:
    """End this process with its parent; nothing but the end of standard input wakes it earlier."""
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    # The server's threads would hold a normal exit.
    os._exit(0)


if __name__ == "__main__":
    main()
