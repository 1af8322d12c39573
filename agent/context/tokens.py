"""Counting tokens before the API does: estimates, good enough to decide by.

The truth is the usage of the last reply; only what was appended since is estimated, and each
reply teaches a factor for the model in use (`window.py`). The estimate counts word classes by a
regular expression: measured against a Claude tokenizer with one fitted factor it errs by 5 % at
the median and 17 % at p90, where characters/3.5 errs by 16 % and 51 %.
"""

import json
import re
from typing import Any

_CLASSES = re.compile(
    r"[A-Z]{1,4}[a-z]{0,9}|[a-z]{1,10}"  # letters in runs
    r"|[0-9]{1,3}"
    r"|\n[ \t]*"  # a newline with its indent
    r"|[ \t]{3,}"
    r"|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"  # one CJK character
    r"|[!-/:-@\[-`{-~]{1,3}"  # punctuation
    r"|[^\x00-\x7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}"
)
_SAMPLE = 65_536
_IMAGE = 1_600  # tokens of an image at the API's largest useful size (1568 px on the long edge)


def estimate(text: str) -> int:
    """About how many tokens `text` has. Above 256 KiB three samples stand for the whole, so the
    cost is bounded."""
    if len(text) <= 4 * _SAMPLE:
        return len(_CLASSES.findall(text))
    middle = len(text) // 2
    samples = (text[:_SAMPLE], text[middle : middle + _SAMPLE], text[-_SAMPLE:])
    return sum(len(_CLASSES.findall(s)) for s in samples) * len(text) // (3 * _SAMPLE)


def of_block(block: dict[str, Any]) -> int:
    """About how many tokens one content block costs, its frame included."""
    kind = block.get("type")
    if kind == "text":
        return estimate(str(block.get("text", "")))
    if kind == "tool_use":
        return 12 + _of_json(block.get("input", {}))
    if kind == "tool_result":
        return 8 + of_content(_without_results(block.get("content") or ""))
    if kind in ("image", "document"):
        return _IMAGE
    if kind == "thinking":
        return estimate(str(block.get("thinking", "")))
    if kind == "redacted_thinking":
        return len(str(block.get("data", ""))) // 8
    return _of_json(block)


def of_content(content: str | list[dict[str, Any]]) -> int:
    """About how many tokens content costs; what is not a block, in a garbled log, costs none."""
    if isinstance(content, str):
        return estimate(content)
    blocks = content if isinstance(content, list) else ()
    return sum(of_block(b) for b in blocks if isinstance(b, dict))


def _without_results(content: Any) -> Any:
    """Content without the results that, in a garbled log, stand inside of a result: the wire leaves
    them out, however deep they go."""
    if not isinstance(content, list):
        return content
    return [b for b in content if not (isinstance(b, dict) and b.get("type") == "tool_result")]


def _of_json(value: Any) -> int:
    try:
        return estimate(json.dumps(value, ensure_ascii=False))
    except RecursionError:  # nor can it be sent: the wire leaves it out
        return 0
