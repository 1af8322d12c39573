"""The session of `recorded` as other agents would have recorded it, and all versions by format.

STORY["pi"]()  # the bytes of the file
"""

import json
from collections.abc import Callable
from typing import Any

from . import recorded
from .recorded import (
    BEGAN,
    CODE,
    FAILED,
    MODEL,
    MORE,
    SUMMARY,
    SYSTEM,
    TASK,
    Json,
    claude_call,
    claude_result,
    iso,
    lines,
)


def chat_call(id: str, name: str, given: Json) -> Json:
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(given)},
    }


READ, RUN, MAKE = (
    chat_call("c1", "read", {"path": "a.py"}),
    chat_call("c2", "shell", {"command": "pytest"}),
    chat_call("c3", "shell", {"command": "make"}),
)


def qwen_line(kind: str, after: float, *parts: Json, **fields: Any) -> Json:
    return {"type": kind, "uuid": f"{kind}-{after}", "timestamp": iso(after), "cwd": "/p",
            "message": {"role": "model" if kind == "assistant" else "user", "parts": list(parts)},
            **fields}  # fmt: skip


def qwen_reply(after: float, prompt: int, output: int, *parts: Json) -> Json:
    usage = {"promptTokenCount": prompt, "candidatesTokenCount": output}
    return qwen_line("assistant", after, *parts, model=MODEL, usageMetadata=usage)


def qwen_call(id: str, name: str, given: Json) -> Json:
    return {"functionCall": {"id": id, "name": name, "args": given}}


def qwen_result(after: float, id: str, response: Json) -> Json:
    return qwen_line("tool_result", after, {"functionResponse": {"id": id, "response": response}})


def qwen() -> bytes:
    compressed = [
        {"role": "user", "parts": [{"text": SUMMARY}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
    ]
    return lines(
        [
            qwen_line("user", 0, {"text": TASK}),
            {"type": "system", "subtype": "ui_telemetry", "systemPayload": {}},
            qwen_reply(1, 1_200, 30, {"text": "Hm.", "thought": True}, {"text": "I look."},
                       qwen_call("c1", "read", {"path": "a.py"}),
                       qwen_call("c2", "shell", {"command": "pytest"})),
            qwen_result(2, "c1", {"output": CODE}),
            qwen_result(3, "c2", {"error": FAILED}),
            {"type": "system", "subtype": "chat_compression", "timestamp": iso(4),
             "systemPayload": {"compressedHistory": compressed}},
            qwen_line("user", 5, {"text": MORE}),
            qwen_reply(6, 900, 10, qwen_call("c3", "shell", {"command": "make"})),
            qwen_reply(7, 950, 5, {"text": "Done."}),
        ]
    )  # fmt: skip


def kimi_event(after: float, kind: str, **payload: Any) -> Json:
    return {"timestamp": BEGAN + after, "message": {"type": kind, "payload": payload}}


def kimi_result(after: float, id: str, text: str, is_error: bool = False) -> Json:
    value = {"is_error": is_error, "output": text, "message": ""}
    return kimi_event(after, "ToolResult", tool_call_id=id, return_value=value)


def kimi_used(prompt: int, output: int) -> Json:
    usage = {"input_other": prompt - 100, "input_cache_read": 100, "output": output}
    return kimi_event(8, "StatusUpdate", token_usage=usage)


def kimi() -> bytes:
    return lines(
        [
            {"type": "metadata", "protocol_version": "1.10"},
            kimi_event(0, "TurnBegin", user_input=TASK),
            kimi_event(0, "StepBegin", n=1),
            kimi_event(0.5, "ContentPart", type="think", think="Hm."),
            kimi_event(0.5, "ContentPart", type="text", text="I look."),
            kimi_event(0.8, "ToolCall", **READ),
            kimi_event(1, "ToolCall", **RUN),
            kimi_used(1_200, 30),
            kimi_result(2, "c1", CODE),
            kimi_result(3, "c2", FAILED, True),
            kimi_event(4, "CompactionEnd"),
            kimi_event(5, "TurnBegin", user_input=[{"type": "text", "text": MORE}]),
            kimi_event(5, "StepBegin", n=1),
            kimi_event(6, "ToolCall", **MAKE),
            kimi_used(900, 10),
            kimi_event(6, "StepBegin", n=2),
            kimi_event(7, "ContentPart", type="text", text="Done."),
            kimi_used(950, 5),
        ]
    )


def chat_rows(**fields: Any) -> list[Json]:
    """Return the messages of the session in the format of OpenAI's chat API, each with these
    fields.
    """
    rows: list[Json] = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": "I look.", "tool_calls": [READ, RUN]},
        {"role": "tool", "tool_call_id": "c1", "content": CODE},
        {"role": "tool", "tool_call_id": "c2", "content": FAILED, "outcome": "failure"},
        {"role": "user", "content": MORE},
        {"role": "assistant", "content": "", "tool_calls": [MAKE]},
        {"role": "assistant", "content": "Done."},
    ]
    return [{**row, **fields} for row in rows]


def vibe() -> bytes:
    meta = {"model": MODEL, "environment": {"working_directory": "/p"}}
    return lines([{"vibe": meta}, *chat_rows(message_id="m")])


def hermes() -> bytes:
    rows = chat_rows()
    for row, after in zip(rows, (0, 1, 2, 3, 5, 6, 7), strict=True):
        row["timestamp"] = BEGAN + after
        row.pop("outcome", None)
        if "tool_calls" in row:
            row["tool_calls"] = json.dumps(row["tool_calls"])
    meta = {"role": "session_meta", "model": MODEL, "system_prompt": SYSTEM}
    return lines([meta, *rows])


def grok() -> bytes:
    rows = []
    for row in chat_rows():
        kind = {"tool": "tool_result"}.get(row["role"], row.pop("role"))
        row.pop("role", None)
        row.pop("outcome", None)
        calls = [{"id": c["id"], **c["function"]} for c in row.pop("tool_calls", ())]
        rows.append({"type": kind, **row, "tool_calls": calls, "model_id": MODEL})
    reasoning = {"type": "reasoning", "id": "r", "summary": []}
    return lines([{"type": "system", "content": SYSTEM}, reasoning, *rows])


def cursor_rows() -> list[Json]:
    """Return the messages in Cursor's `store.db`."""

    def call(id: str, name: str, given: Json) -> Json:
        return {"type": "tool-call", "toolCallId": id, "toolName": name, "args": given}

    def result(id: str, text: str, **fields: Any) -> Json:
        block = {"type": "tool-result", "toolCallId": id, "result": text, **fields}
        return {"role": "tool", "id": id, "content": [block]}

    look = {"type": "text", "text": "I look."}
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": TASK}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "Hm."}, look, call("c1", "read", {"path": "a.py"}),
            call("c2", "shell", {"command": "pytest"})]},
        result("c1", CODE),
        result("c2", FAILED, isError=True),
        {"role": "user", "content": MORE},
        {"role": "assistant", "content": [call("c3", "shell", {"command": "make"})]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]  # fmt: skip


def cursor() -> bytes:
    return lines([{"cursor": {"lastUsedModel": MODEL}}, *cursor_rows()])


def droid_line(role: str, after: float, *blocks: Json) -> Json:
    return {"type": "message", "id": f"{role}-{after}", "timestamp": iso(after),
            "message": {"role": role, "content": list(blocks)}}  # fmt: skip


def droid() -> bytes:
    def text(words: str) -> Json:
        return {"type": "text", "text": words}

    return lines(
        [
            {"type": "session_start", "id": "s", "title": "t", "version": 2, "cwd": "/p"},
            droid_line("user", 0, text(TASK)),
            droid_line("assistant", 1, {"type": "thinking", "thinking": "Hm."}, text("I look."),
                       claude_call("c1", "read", {"path": "a.py"}),
                       claude_call("c2", "shell", {"command": "pytest"})),
            droid_line("user", 2, claude_result("c1", CODE)),
            droid_line("user", 3, claude_result("c2", FAILED, True)),
            {"type": "compaction_state", "id": "k", "timestamp": iso(4), "summaryText": SUMMARY,
             "summaryKind": "llm_summary", "anchorMessage": {"id": "user-3"}, "removedCount": 4},
            droid_line("user", 5, text(MORE)),
            droid_line("assistant", 6, claude_call("c3", "shell", {"command": "make"})),
            droid_line("assistant", 7, text("Done.")),
        ]
    )  # fmt: skip


STORY: dict[str, Callable[[], bytes]] = {
    "claude-code": recorded.claude,
    "codex": recorded.codex,
    "pi": recorded.pi,
    "opencode": recorded.opencode,
    "gemini-cli": recorded.gemini,
    "qwen-code": qwen,
    "kimi": kimi,
    "vibe": vibe,
    "cursor": cursor,
    "droid": droid,
    "grok": grok,
    "hermes": hermes,
    "copilot": recorded.copilot,
    "swe-agent": recorded.sweagent,
    "ctxagent": recorded.own,
}
