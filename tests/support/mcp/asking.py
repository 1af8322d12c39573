"""An MCP server over stdin and stdout that sends requests in the middle of a call, without the SDK.

Answers of the client and changes of tasks are written as lines to the file in the first argument.
"""

import json
import sys
from pathlib import Path
from typing import Any

NOTES = Path(sys.argv[1])
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 3},
        "age": {"type": "integer", "minimum": 18},
        "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "days": {"type": "array", "items": {"enum": ["Mon", "Tue", "Wed"]}},
        "news": {"type": "boolean", "description": "Send news"},
    },
    "required": ["name", "age", "colour"],
}
TOOLS: dict[str, dict[str, Any]] = {
    "form": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM},
    "confirm": {
        "mode": "form", "message": "Delete all?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
    "page": {
        "mode": "url", "message": "Pay first.", "url": "https://pay.example/1",
        "elicitationId": "e1",
    },
    "evil": {
        "mode": "url", "message": "Pay.", "url": "file:///etc/passwd", "elicitationId": "e2",
    },
}  # fmt: skip
tasks: dict[str, int] = {}  # number of polls by task


def note(line: str) -> None:
    with NOTES.open("a") as file:
        file.write(line + "\n")


def say(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the client; return its answer, or {} if it cancels the call."""
    say(id=f"ask-{method}", method=method, params=params)
    for line in sys.stdin:
        message = json.loads(line)
        if str(message.get("id", "")).startswith("ask-"):
            note(f"answer {json.dumps(message.get('result') or message.get('error'))}")
            return message  # type: ignore[no-any-return]
        if message.get("method") == "notifications/cancelled":
            note("cancelled")
            return {}
    sys.exit()


def called(name: str, id: object, params: dict[str, Any]) -> None:
    if name == "needs_page":
        data = {"elicitations": [TOOLS["page"]]}
        say(id=id, error={"code": -32042, "message": "Visit a page first", "data": data})
        return
    if name in ("task", "endless"):
        if "task" not in params:
            say(id=id, error={"code": -32601, "message": f"Tool {name} requires task augmentation"})
            return
        tasks[name] = 0
        say(id=id, result={"task": state(name, "working")})
        return
    if name == "model":
        asked = {"role": "user", "content": {"type": "text", "text": "Name a bird. END"}}
        given = {"messages": [asked], "systemPrompt": "Be brief.", "maxTokens": 50}
        answer = ask("sampling/createMessage", given)
    else:
        answer = ask("elicitation/create", TOOLS[name])
    text = json.dumps(answer.get("result") or answer.get("error"))
    say(id=id, result={"content": [{"type": "text", "text": f"got {text}"}]})


def state(name: str, status: str) -> dict[str, Any]:
    return {
        "taskId": name, "status": status, "createdAt": "2026-11-26T10:00:00Z",
        "lastUpdatedAt": "2026-11-26T10:00:00Z", "ttl": None, "pollInterval": 50,
    }  # fmt: skip


def listed() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    plain = [{"name": name, "inputSchema": schema} for name in (*TOOLS, "model", "needs_page")]
    needs = {"execution": {"taskSupport": "required"}}
    return [
        *plain, *({"name": name, "inputSchema": schema, **needs} for name in ("task", "endless"))
    ]  # fmt: skip


for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    match method:
        case "initialize":
            note(f"capabilities {json.dumps(params['capabilities'])}")
            say(
                id=id,
                result={
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}, "tasks": {"cancel": {}}},
                    "serverInfo": {"name": "asking", "version": "1"},
                },
            )
        case "tools/list":
            say(id=id, result={"tools": listed()})
        case "tools/call":
            called(params["name"], id, params)
        case "tasks/get":
            name = params["taskId"]
            tasks[name] += 1
            note(f"polled {name}")
            done = name == "task" and tasks[name] > 2
            say(id=id, result=state(name, "completed" if done else "working"))
        case "tasks/result":
            say(id=id, result={"content": [{"type": "text", "text": "the task is done"}]})
        case "tasks/cancel":
            note(f"ended {params['taskId']}")
            say(id=id, result=state(params["taskId"], "cancelled"))
        case _ if id is not None and method:
            say(id=id, error={"code": -32601, "message": "Method not found"})
