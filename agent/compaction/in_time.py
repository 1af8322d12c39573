"""The policy for a server whose price is time, such as a model on the user's machine.

What is in the server's cache costs nearly nothing there. Each other token of a prompt is read at
the speed of the machine, and each token of a reply is written more slowly still. So a large result
is moved to a file before it is read, and a summary that a model would write for long comes from the
ledger. `layers.apply` gives break-even the prices.
"""

from dataclasses import replace
from typing import Any

from ..context.window import Window
from ..session.server_speed import TokenSeconds
from .policy import Policy
from .summary.background import REPLY_SHARE
from .summary.request import max_summary_tokens

MAX_RESULT_S = 20.0  # to read one result; a result that takes longer is moved to a file
MAX_FILE_S = 60.0  # the same for tools that return a text to read in full
MAX_RESULT_SHARE = 0.10  # of the window, for one result
MAX_FILE_SHARE = 0.20
PREVIEW_CHARS_PER_TOKEN = 1.0  # characters of a preview, for each token of the limit of a result
MAX_SUMMARY_S = 15.0  # to write a summary of the usual length


def policy_in_time(policy: Policy, speed: TokenSeconds | None, window: Window) -> Policy:
    """Return the policy for a server of this speed. Settings of the user and the presets of
    published protocols stay. Without a speed, return the same policy.
    """
    if speed is None or not policy.saves_time:
        return policy
    changed: dict[str, Any] = {}
    if policy.move_above is not None:
        most = min(MAX_RESULT_S / speed.prefill, MAX_RESULT_SHARE * window.size)
        most_of_file = min(MAX_FILE_S / speed.prefill, MAX_FILE_SHARE * window.size)
        changed = {
            "move_above": min(policy.move_above, int(most)),
            "move_reads_above": min(policy.move_reads_above, int(most_of_file)),
            "preview_chars": min(policy.preview_chars, int(PREVIEW_CHARS_PER_TOKEN * most)),
        }
    writing = REPLY_SHARE * max_summary_tokens(window) * speed.output_at(window.tokens)
    if policy.summarizer == "model" and policy.model is None and writing > MAX_SUMMARY_S:
        changed["summarizer"] = "mechanical"
    return replace(policy, **{k: v for k, v in changed.items() if k not in policy.fixed})
