"""A recording format: the sessions of an agent whose rows are {"diary": WHO, "text": …}."""

from collections.abc import Iterable
from typing import Any

from ctxagent.api.extension import Feature, RecordedResult, TranscriptBuilder


class Diary:
    def recognizes(self, row: dict[str, Any]) -> bool:
        return "diary" in row

    def read(self, rows: Iterable[dict[str, Any]]) -> TranscriptBuilder:
        built = TranscriptBuilder()
        for number, row in enumerate(rows):
            if row.get("diary") == "user":
                built.add_words(row["text"], row.get("at"))
            elif row.get("diary") == "agent":
                draft = built.draft_reply(number, row.get("at"), row.get("model"))
                draft.add_text(row.get("text", ""))
                for call in built.objects(row.get("calls", [])):
                    result = RecordedResult(call["output"])
                    built.add_call(draft, call["id"], call["tool"], call["input"], result)
            elif "cwd" in row:
                built.set_cwd(row["cwd"])
            else:
                built.skipped += 1
        return built


class DiaryFeature(Feature):
    recording_formats = {"diary": Diary()}  # noqa: RUF012
