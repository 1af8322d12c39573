"""A recording as the bytes of the file that another agent would have written.

RECORDED_AS["pi"](checks())
"""

from collections.abc import Callable, Iterator

from ctxagent.agent.recordings.recording import RecordedMessage, RecordedReply, Recording

from .recorded import (
    MODEL,
    SYSTEM,
    Json,
    claude_call,
    claude_line,
    claude_result,
    codex_call,
    codex_item,
    codex_line,
    codex_words,
    iso,
    lines,
    pi_call,
    pi_line,
    pi_reply,
    pi_result,
)


def _steps(recording: Recording) -> Iterator[tuple[float, RecordedMessage | RecordedReply]]:
    """Yield the steps, each with its time in seconds from the beginning."""
    for number, step in enumerate(recording.steps):
        if isinstance(step, RecordedMessage | RecordedReply):
            yield float(number), step


def claude(recording: Recording) -> bytes:
    rows: list[Json] = []
    for at, step in _steps(recording):
        if isinstance(step, RecordedMessage):
            rows.append(claude_line("user", at, step.text))
            continue
        blocks = [{"type": "text", "text": step.text}]
        blocks += [claude_call(call.id, call.name, call.input) for call in step.calls]
        rows.append(claude_line("assistant", at, blocks, id=f"m{at}"))
        results = [claude_result(call.id, call.text, call.is_error) for call in step.calls]
        rows += [claude_line("user", at + 0.5, results)] if results else []
    return lines(rows)


def codex(recording: Recording) -> bytes:
    rows = [
        codex_line(0, "session_meta", id="s", base_instructions={"text": SYSTEM}),
        codex_line(0, "turn_context", model=MODEL),
    ]
    for at, step in _steps(recording):
        if isinstance(step, RecordedMessage):
            rows.append(codex_words(at, "user", step.text))
            continue
        rows.append(codex_words(at, "assistant", step.text))
        rows += [codex_call(at, call.id, call.name, call.input) for call in step.calls]
        rows += [
            codex_item(at + 0.5, "function_call_output", call_id=call.id, output=call.text)
            for call in step.calls
        ]
    return lines(rows)


def pi(recording: Recording) -> bytes:
    rows: list[Json] = [
        {"type": "session", "id": "s", "timestamp": iso(0), "cwd": "/p", "modelId": MODEL}
    ]
    for at, step in _steps(recording):
        if isinstance(step, RecordedMessage):
            rows.append(pi_line(at, role="user", content=[{"type": "text", "text": step.text}]))
            continue
        calls = [pi_call(call.id, call.name, call.input) for call in step.calls]
        rows.append(pi_reply(at, 1_000, 30, {"type": "text", "text": step.text}, *calls))
        rows += [pi_result(at + 0.5, c.id, c.text, c.is_error) for c in step.calls]
    return lines(rows)


RECORDED_AS: dict[str, Callable[[Recording], bytes]] = {
    "claude-code": claude, "codex": codex, "pi": pi,
}  # fmt: skip
