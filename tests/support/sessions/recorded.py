"""One small session as each agent would have recorded it, as bytes.

pi()         # the bytes of the file; `stories` has those of all agents by format
steps("pi")  # the expected result of its reader
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ctxagent.agent.recordings.recording import (
    UNANSWERED,
    RecordedCall,
    RecordedCompaction,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
)
from ctxagent.agent.session.entries import Assistant, Entry, Session, Summary, ToolResult, User
from ctxagent.agent.session.log import encode_line

BEGAN = 1_790_000_000.0  # seconds since 1970
SYSTEM = "Be exact."
TASK, SUMMARY, MORE = "Find the fault.", "A test fails in a.py.", "Go on, please."
CODE, FAILED = "def f():\n    return 1\n", "1 failed\nassert 1 == 2"
MODEL = "some-model-1"

Json = dict[str, Any]

_WHOLE: tuple[RecordedStep, ...] = (
    RecordedMessage(TASK, BEGAN),
    RecordedReply(
        "I look.",
        (
            RecordedCall("c1", "read", {"path": "a.py"}, CODE, at=BEGAN + 2, ref="#4"),
            RecordedCall(
                "c2", "shell", {"command": "pytest"}, FAILED, True, at=BEGAN + 3, ref="#5"
            ),
        ),
        BEGAN + 1,
        prompt=1_200,
        output=30,
    ),
    RecordedCompaction(BEGAN + 4),
    RecordedMessage(SUMMARY, BEGAN + 4, is_summary=True),
    RecordedMessage(MORE, BEGAN + 5),
    RecordedReply(
        "",
        (RecordedCall("c3", "shell", {"command": "make"}, UNANSWERED, answered=False),),
        BEGAN + 6,
        prompt=900,
        output=10,
    ),
    RecordedReply("Done.", (), BEGAN + 7, prompt=950, output=5),
)
_LACKS = {  # parts that a format cannot represent, and its peculiarities
    "codex": {"errors", "keeps words"},
    "gemini-cli": {"compaction", "summary"},
    "copilot": {"prompt"},
    "swe-agent": {"times", "prompt", "output", "errors", "compaction", "summary"},
    "ctxagent": {"summary"},
    "kimi": {"summary"},
    "vibe": {"times", "prompt", "output", "compaction", "summary"},
    "cursor": {"times", "prompt", "output", "compaction", "summary"},
    "grok": {"times", "prompt", "output", "errors", "compaction", "summary"},
    "hermes": {"prompt", "output", "errors", "compaction", "summary"},
    "droid": {"prompt", "output"},
}
SYSTEMS = dict.fromkeys(
    ("codex", "copilot", "swe-agent", "ctxagent", "cursor", "grok", "hermes"), SYSTEM
)
NO_MODELS = ("kimi", "droid")  # formats that do not name the model


def steps(format: str) -> tuple[RecordedStep, ...]:
    """Return the steps of the session, as far as a format can represent them."""
    lacks = _LACKS.get(format, set()) | ({"refs"} if format != "ctxagent" else set())
    told = [_lacking(step, lacks) for step in _WHOLE]
    return tuple(
        step
        for step in told
        if not (isinstance(step, RecordedCompaction) and "compaction" in lacks)
        and not (isinstance(step, RecordedMessage) and step.text == SUMMARY and "summary" in lacks)
    )


def _lacking(step: RecordedStep, lacks: set[str]) -> RecordedStep:
    if isinstance(step, RecordedReply):
        calls = step.calls
        if "errors" in lacks:
            calls = tuple(replace(call, is_error=False) for call in calls)
        if "refs" in lacks:
            calls = tuple(replace(call, ref="") for call in calls)
        if "times" in lacks:
            calls = tuple(replace(call, at=None) for call in calls)
        prompt = None if "prompt" in lacks else step.prompt
        output = None if "output" in lacks else step.output
        step = replace(step, calls=calls, prompt=prompt, output=output)
    if isinstance(step, RecordedCompaction):
        step = replace(step, keeps_words="keeps words" in lacks)
    return replace(step, at=None) if "times" in lacks else step


def iso(after: float) -> str:
    """Return the time `after` seconds from the beginning, in the most common format."""
    told = datetime.fromtimestamp(BEGAN + after, UTC).isoformat(timespec="milliseconds")
    return told.replace("+00:00", "Z")


def ms(after: float) -> int:
    return int((BEGAN + after) * 1_000)


def lines(rows: list[Json]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def claude_line(kind: str, after: float, content: Any, **fields: Any) -> Json:
    """Return a line of Claude Code; `id`, `usage` and `stop_reason` belong to its message."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message["model"] = MODEL
    for name in ("id", "usage", "stop_reason", "model"):
        if name in fields:
            message[name] = fields.pop(name)
    return {
        "type": kind, "uuid": f"{kind}-{after}", "timestamp": iso(after), "isSidechain": False,
        "message": message, **fields,
    }  # fmt: skip


def claude_call(id: str, name: str, given: Json) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def claude_result(id: str, text: Any, is_error: bool = False) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}


def claude() -> bytes:
    stub = {"input_tokens": 1_000, "cache_read_input_tokens": 200, "output_tokens": 1}
    used = {
        "input_tokens": 100, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 800,
        "output_tokens": 30,
    }  # fmt: skip
    read, run, make = (
        claude_call("c1", "read", {"path": "a.py"}),
        claude_call("c2", "shell", {"command": "pytest"}),
        claude_call("c3", "shell", {"command": "make"}),
    )
    boundary = {
        "type": "system", "subtype": "compact_boundary", "timestamp": iso(4), "parentUuid": None,
    }  # fmt: skip
    begin = [
        {"type": "file-history-snapshot", "snapshot": {}},
        claude_line("user", 0, TASK),
        claude_line("assistant", 0.4, [{"type": "thinking", "thinking": "Hm."}], id="m1"),
        claude_line(
            "assistant", 0.6, [{"type": "text", "text": "I look."}], id="m1", usage=stub,
            stop_reason=None,
        ),
        claude_line("assistant", 0.8, [read], id="m1", usage=stub, stop_reason=None),
        claude_line("assistant", 1, [run], id="m1", usage=used, stop_reason="tool_use"),
        claude_line("user", 2, [claude_result("c1", [{"type": "text", "text": CODE}])]),
        claude_line("user", 3, [claude_result("c2", FAILED, True)], toolUseResult={"out": FAILED}),
    ]  # fmt: skip
    return lines(
        [
            *begin,
            boundary,
            claude_line("user", 4, SUMMARY, isCompactSummary=True),
            claude_line("user", 5, [{"type": "text", "text": MORE}]),
            claude_line("assistant", 6, [make], id="m2", usage=_claude_usage(900, 10),
                        stop_reason="tool_use"),
            claude_line("assistant", 7, [{"type": "text", "text": "Done."}], id="m3",
                        usage=_claude_usage(950, 5), stop_reason="end_turn"),
        ]
    )  # fmt: skip


def _claude_usage(prompt: int, output: int) -> Json:
    return {"input_tokens": prompt, "output_tokens": output}


def codex_line(after: float, kind: str, **payload: Any) -> Json:
    return {"timestamp": iso(after), "type": kind, "payload": payload}


def codex_item(after: float, type: str, **payload: Any) -> Json:
    return codex_line(after, "response_item", type=type, **payload)


def codex_words(after: float, role: str, text: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex_item(after, "message", role=role, content=[{"type": kind, "text": text}])


def codex_count(prompt: int, output: int, total: int) -> Json:
    info = {
        "total_token_usage": {"input_tokens": total},
        "last_token_usage": {"input_tokens": prompt, "output_tokens": output},
    }
    return codex_line(9, "event_msg", type="token_count", info=info)


def codex_call(after: float, id: str, name: str, given: Json) -> Json:
    return codex_item(after, "function_call", name=name, arguments=json.dumps(given), call_id=id)


def codex() -> bytes:
    return lines(
        [
            codex_line(0, "session_meta", id="s", base_instructions={"text": SYSTEM}),
            codex_line(0, "turn_context", model=MODEL),
            codex_words(0, "user", TASK),
            codex_line(0, "event_msg", type="user_message", message=TASK),
            codex_item(0, "reasoning", summary=[], encrypted_content="zzz"),
            codex_words(0.5, "assistant", "I look."),
            codex_call(0.8, "c1", "read", {"path": "a.py"}),
            codex_call(1, "c2", "shell", {"command": "pytest"}),
            codex_item(2, "function_call_output", call_id="c1", output=CODE),
            codex_item(3, "function_call_output", call_id="c2",
                       output=[{"type": "input_text", "text": FAILED}]),
            codex_count(1_200, 30, 1_200),
            codex_line(4, "compacted", message=SUMMARY, replacement_history=[]),
            codex_count(0, 0, 1_200),
            codex_words(5, "user", MORE),
            codex_call(6, "c3", "shell", {"command": "make"}),
            codex_count(900, 10, 2_100),
            codex_words(7, "assistant", "Done."),
            codex_count(950, 5, 3_050),
        ]
    )  # fmt: skip


def pi_line(after: float, **message: Any) -> Json:
    return {"type": "message", "timestamp": iso(after), "message": message}


def pi_reply(after: float, prompt: int, output: int, *content: Json) -> Json:
    usage = {"input": prompt - 100, "cacheRead": 60, "cacheWrite": 40, "output": output}
    return pi_line(after, role="assistant", content=list(content), model=MODEL, usage=usage)


def pi_call(id: str, name: str, given: Json) -> Json:
    return {"type": "toolCall", "id": id, "name": name, "arguments": given}


def pi_result(after: float, id: str, text: str, is_error: bool = False) -> Json:
    content = [{"type": "text", "text": text}]
    return pi_line(after, role="toolResult", toolCallId=id, content=content, isError=is_error)


def pi() -> bytes:
    return lines(
        [
            {"type": "session", "id": "s", "timestamp": iso(0), "cwd": "/p", "modelId": MODEL},
            pi_line(0, role="user", content=[{"type": "text", "text": TASK}]),
            pi_reply(1, 1_200, 30, {"type": "thinking", "thinking": "Hm."},
                     {"type": "text", "text": "I look."}, pi_call("c1", "read", {"path": "a.py"}),
                     pi_call("c2", "shell", {"command": "pytest"})),
            pi_result(2, "c1", CODE),
            pi_result(3, "c2", FAILED, True),
            {"type": "compaction", "timestamp": iso(4), "summary": SUMMARY, "tokensBefore": 9},
            pi_line(5, role="user", content=MORE),
            pi_reply(6, 900, 10, pi_call("c3", "shell", {"command": "make"})),
            {**pi_reply(6.5, 900, 10), "stopReason": "aborted"},
            pi_reply(7, 950, 5, {"type": "text", "text": "Done."}),
        ]
    )  # fmt: skip


def opencode_message(role: str, after: float, *parts: Json, **info: Any) -> Json:
    time = {"created": ms(after - 0.5 if role == "assistant" else after), "completed": ms(after)}
    return {"info": {"role": role, "time": time, **info}, "parts": list(parts)}


def opencode_tokens(prompt: int, output: int) -> Json:
    cache = {"read": prompt - 100, "write": 60}
    return {"input": 40, "output": output - 2, "reasoning": 2, "cache": cache}


def opencode_tool(id: str, tool: str, given: Json, **state: Any) -> Json:
    return {"type": "tool", "callID": id, "tool": tool, "state": {"input": given, **state}}


def opencode() -> bytes:
    def text(text: str) -> Json:
        return {"type": "text", "text": text}

    begun, ended = {"type": "step-start"}, {"type": "step-finish"}
    messages = [
        opencode_message("user", 0, text(TASK)),
        opencode_message(
            "assistant", 1, begun, {"type": "reasoning", "text": "Hm."}, text("I look."),
            opencode_tool("c1", "read", {"path": "a.py"}, status="completed", output=CODE,
                          time={"end": ms(2)}),
            opencode_tool("c2", "shell", {"command": "pytest"}, status="error", error=FAILED,
                          time={"end": ms(3)}),
            ended, modelID=MODEL, tokens=opencode_tokens(1_200, 30),
        ),
        opencode_message("user", 4, {"type": "compaction", "auto": True}),
        opencode_message("assistant", 4, text(SUMMARY), summary=True, modelID=MODEL),
        opencode_message("user", 5, text(MORE), {"type": "text", "text": "no", "ignored": True}),
        opencode_message(
            "assistant", 6, begun, opencode_tool("c3", "shell", {"command": "make"},
                                                 status="running"),
            modelID=MODEL, tokens=opencode_tokens(900, 10),
        ),
        opencode_message(
            "assistant", 7, begun, text("Done."), ended, modelID=MODEL,
            tokens=opencode_tokens(950, 5),
        ),
    ]  # fmt: skip
    return json.dumps(
        {"info": {"id": "s", "version": "1"}, "messages": messages}, indent=1
    ).encode()


def gemini_call(id: str, name: str, given: Json, after: float, **fields: Any) -> Json:
    return {"id": id, "name": name, "args": given, "timestamp": iso(after), **fields}


def gemini_answer(response: Json) -> list[Json]:
    return [{"functionResponse": {"id": "x", "name": "y", "response": response}}]


def gemini() -> bytes:
    def reply(after: float, content: str, prompt: int, output: int, **fields: Any) -> Json:
        tokens = {"input": prompt, "output": output - 3, "thoughts": 3, "cached": 7}
        return {
            "type": "gemini", "id": str(after), "timestamp": iso(after), "content": content,
            "model": MODEL, "tokens": tokens, **fields,
        }  # fmt: skip

    calls = [
        gemini_call("c1", "read", {"path": "a.py"}, 2, status="success",
                    result=gemini_answer({"output": CODE}), resultDisplay="2 lines"),
        gemini_call("c2", "shell", {"command": "pytest"}, 3, status="error",
                    result=gemini_answer({"error": FAILED})),
    ]  # fmt: skip
    waiting = gemini_call("c3", "shell", {"command": "make"}, 6, status="cancelled")
    messages = [
        {"type": "info", "id": "0", "timestamp": iso(0), "content": "Welcome."},
        {"type": "user", "id": "1", "timestamp": iso(0), "content": TASK},
        reply(1, "I look.", 1_200, 30, toolCalls=calls),
        {"type": "user", "id": "2", "timestamp": iso(5), "content": [{"text": MORE}]},
        reply(6, "", 900, 10, toolCalls=[waiting]),
        reply(7, "Done.", 950, 5),
    ]
    return json.dumps({"sessionId": "s", "projectHash": "p", "messages": messages}).encode()


def copilot_event(after: float, type: str, **data: Any) -> Json:
    return {"type": type, "data": data, "id": f"e{after}", "timestamp": iso(after)}


def copilot_reply(after: float, content: str, output: int, *requests: Json) -> Json:
    return copilot_event(
        after, "assistant.message", messageId=f"m{after}", model=MODEL, content=content,
        toolRequests=list(requests), outputTokens=output,
    )  # fmt: skip


def copilot_request(id: str, name: str, given: Json) -> Json:
    return {"toolCallId": id, "name": name, "arguments": given}


def copilot_result(after: float, id: str, **data: Any) -> Json:
    return copilot_event(after, "tool.execution_complete", toolCallId=id, **data)


def copilot() -> bytes:
    return lines(
        [
            copilot_event(0, "session.start", sessionId="s"),
            copilot_event(0, "system.message", role="system", content=SYSTEM),
            copilot_event(0, "user.message", content="Find", transformedContent=TASK),
            copilot_reply(1, "I look.", 30, copilot_request("c1", "read", {"path": "a.py"}),
                          copilot_request("c2", "shell", {"command": "pytest"})),
            copilot_result(2, "c1", success=True,
                           result={"content": CODE, "detailedContent": "diff"}),
            copilot_result(3, "c2", success=False, error={"message": FAILED, "code": "failure"}),
            copilot_event(4, "session.compaction_complete", success=True, summaryContent=SUMMARY),
            copilot_event(5, "user.message", content=MORE),
            copilot_reply(6, "", 10, copilot_request("c3", "shell", {"command": "make"})),
            copilot_reply(7, "Done.", 5),
        ]
    )  # fmt: skip


def sweagent_reply(thought: str, *calls: tuple[str, str, Json], **fields: Any) -> Json:
    asked = [
        {"id": id, "function": {"name": name, "arguments": json.dumps(given)}}
        for id, name, given in calls
    ]
    return {"role": "assistant", "thought": thought, "content": thought, "tool_calls": asked,
            "message_type": "action", **fields}  # fmt: skip


def sweagent_result(id: str, text: str) -> Json:
    content = [{"type": "text", "text": text}]
    return {"role": "tool", "content": content, "tool_call_ids": [id],
            "message_type": "observation"}  # fmt: skip


def sweagent_file(*history: Json) -> bytes:
    config = json.dumps({"agent": {"model": {"name": MODEL}}})
    system = {"role": "system", "content": SYSTEM, "message_type": "system_prompt"}
    return json.dumps(
        {"trajectory": [], "history": [system, *history], "info": {}, "replay_config": config}
    ).encode()


def sweagent() -> bytes:
    return sweagent_file(
        {"role": "user", "content": [{"type": "text", "text": TASK}],
         "message_type": "observation"},
        sweagent_reply("I look.", ("c1", "read", {"path": "a.py"}),
                       ("c2", "shell", {"command": "pytest"})),
        sweagent_result("c1", CODE),
        sweagent_result("c2", FAILED),
        {"role": "user", "content": MORE},
        sweagent_reply("", ("c3", "shell", {"command": "make"})),
        sweagent_reply("Done."),
    )  # fmt: skip


def log(*entries: Entry) -> bytes:
    """Return entries as one of our logs; their times are seconds after the beginning."""
    numbered = (
        replace(entry, seq=seq, at=iso(float(entry.at or 0)))
        for seq, entry in enumerate(entries, 1)
    )
    return b"".join(map(encode_line, numbered))


def own_reply(after: float, prompt: int, output: int, *blocks: Json, **fields: Any) -> Assistant:
    usage = {"input": prompt - 100, "cache_read": 60, "cache_creation": 40, "output": output}
    return Assistant(
        at=str(after), content=list(blocks), usage=usage, stop_reason="end_turn", model=MODEL,
        **fields,
    )  # fmt: skip


def own() -> bytes:
    def text(text: str) -> Json:
        return {"type": "text", "text": text}

    return log(
        Session(id="s", cwd="/p", version="1", model=MODEL, system=SYSTEM),
        User(at="0", content=TASK),
        own_reply(1, 1_200, 30, {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                  text("I look."), claude_call("c1", "read", {"path": "a.py"}),
                  claude_call("c2", "shell", {"command": "pytest"})),
        ToolResult(at="2", tool_use_id="c1", content=CODE),
        ToolResult(at="3", tool_use_id="c2", content=[text(FAILED)], is_error=True),
        own_reply(3.5, 1_300, 9, text("A summary."), purpose="summary"),
        Summary(at="4", document={}, text=SUMMARY, covers=[2, 5], keep_from=6),
        User(at="4", content="It is Monday.", source="environment"),
        User(at="4", content="Instructions from AGENTS.md", source="instructions"),
        User(at="5", content=MORE),
        own_reply(6, 900, 10, claude_call("c3", "shell", {"command": "make"})),
        own_reply(7, 950, 5, text("Done.")),
    )  # fmt: skip
