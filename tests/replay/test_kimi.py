"""Kimi's files beyond the common session: `context.jsonl` after a compaction, and Kimi Code."""

from pathlib import Path

from ctxagent.addons.replay.formats import load_recording
from ctxagent.agent.recordings.recording import (
    RecordedCall,
    RecordedMessage,
    RecordedReply,
    RecordedStep,
    Recording,
)

from ..support.sessions.recorded import MORE, SUMMARY, TASK, Json, lines


def read(path: Path, *rows: Json) -> Recording:
    path.write_bytes(lines(list(rows)))
    return load_recording(path)


def test_the_summary_in_the_context(tmp_path: Path) -> None:
    heading = "<system>Previous context has been compacted. Here is the compaction output:</system>"
    compacted = [{"type": "text", "text": text} for text in (heading, SUMMARY)]
    recording = read(
        tmp_path / "context.jsonl",
        {"role": "_system_prompt", "content": "Be exact."},
        {"role": "user", "content": compacted},
        {"role": "assistant", "content": "I go on."},
        {"role": "_usage", "token_count": 9},
    )
    assert recording.system == "Be exact."
    assert recording.steps == (
        RecordedMessage(f"{heading}\n{SUMMARY}", is_summary=True),
        RecordedReply("I go on."),
    )


def test_kimi_code(tmp_path: Path) -> None:
    def event(time: int, type: str, **fields: object) -> Json:
        told = {"type": type, **fields}
        return {"type": "context.append_loop_event", "time": time, "event": told}

    def text(words: str) -> Json:
        return {"type": "text", "text": words}

    recording = read(
        tmp_path / "wire.jsonl",
        {"type": "metadata", "protocol_version": "1.4"},
        {"type": "config.update", "cwd": "/p", "modelAlias": "k"},
        {"type": "turn.prompt", "time": 1_790_000_000_000, "input": [text(TASK)]},
        event(1_790_000_001_000, "step.begin"),
        event(1_790_000_001_000, "content.part", part={"type": "think", "think": "Hm."}),
        event(1_790_000_001_000, "content.part", part=text("I look.")),
        event(1_790_000_002_000, "tool.call", toolCallId="c", name="Bash", args={"command": "ls"}),
        event(1_790_000_003_000, "tool.result", toolCallId="c",
              result={"output": "", "message": "no such folder", "isError": True}),
        {"type": "turn.steer", "time": 1_790_000_004_000, "input": [text(MORE)]},
        event(1_790_000_005_000, "step.begin"),
        event(1_790_000_005_000, "content.part", part=text("Done.")),
    )  # fmt: skip
    call = RecordedCall("c", "Bash", {"command": "ls"}, "no such folder", True, at=1_790_000_003.0)
    steps: tuple[RecordedStep, ...] = (
        RecordedMessage(TASK, 1_790_000_000.0),
        RecordedReply("I look.", (call,), 1_790_000_002.0),
        RecordedMessage(MORE, 1_790_000_004.0),
        RecordedReply("Done.", (), 1_790_000_005.0),
    )
    assert (recording.format, recording.cwd) == ("kimi", "/p")
    assert recording.steps == steps
