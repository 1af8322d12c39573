"""An MCP server over stdin and stdout that gives the answers in a JSON file: a result by method,
and an error by method in `errors`. The lines in `printed` come first.
"""

import json
import sys
from pathlib import Path

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "reported", "version": "1"},
    },
    **json.loads(Path(sys.argv[1]).read_text()),
}

for line in ANSWERS.pop("printed", ()):
    print(line, flush=True)
ERRORS = ANSWERS.pop("errors", {})
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        method = request["method"]
        error = ERRORS.get(method, {"code": -32601, "message": "no such method"})
        answer = {"result": ANSWERS[method]} if method in ANSWERS else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
