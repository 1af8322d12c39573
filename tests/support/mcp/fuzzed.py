"""An MCP server over stdin and stdout whose answers to calls are those of `fuzz.py`. The argument
`seed` of a call selects the answer.
"""

import json
import sys

from fuzz import lines  # type: ignore[import-not-found]  # next to this script

for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "tools/call":
        for each in lines(message["params"]["arguments"]["seed"], id)[0]:
            sys.stdout.buffer.write(each + b"\n")
        sys.stdout.buffer.flush()
        continue
    tools = [{"name": "fuzz", "inputSchema": {"type": "object"}}]
    result = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}},
        "tools/list": {"tools": tools},
    }.get(method, {})
    if id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
