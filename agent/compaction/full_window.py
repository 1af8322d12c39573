"""The error for a context that does not fit into the window."""

from ..context import tokens
from ..context.view import View
from ..context.window import MIN_OUTPUT_TOKENS, Window
from ..errors import LimitReached
from .policy import Policy
from .summary.request import headline

MAX_NAMED = 3  # largest parts of the context, in the error
LARGE_FIXED_SHARE = 0.5  # of the window, for the system prompt, the tools and a reply
HINT_OFF = (
    "`compact.mode` is off. Run /compact or `ctxagent compact ID` to make room. The log keeps the "
    "whole conversation."
)
HINT_FULL = (
    "Start a fresh session, or use a model with a larger window. The log keeps the whole "
    "conversation."
)
HINT_FIXED = (
    "The system prompt and the tools are part of every request. `--preset small` makes them "
    "shorter, `features.off` switches tools off. Or serve the model with a larger window (Ollama: "
    "OLLAMA_CONTEXT_LENGTH, or num_ctx in the Modelfile), and set its size with "
    "`--context-window`."
)


def full_window_error(view: View, window: Window, policy: Policy, why: str) -> LimitReached:
    """Return the error for this context. `why` is the reason why no summary was made, or ""."""
    system = view.scaled(tokens.estimate(view.system))
    tools = view.scaled(tokens.estimate_content(view.tools))
    found = [(system, "the system prompt"), (tools, f"the definitions of {len(view.tools)} tools")]
    found += [(view.scaled(item.size), f"#{item.seq} {headline(item)}") for item in view.items]
    largest = sorted(found, key=lambda each: -each[0])[:MAX_NAMED]
    named = "; ".join(f"{what}, {size:,} tokens" for size, what in largest)
    fixed = system + tools + MIN_OUTPUT_TOKENS + window.reserve
    hint = HINT_OFF if policy.mode == "off" else HINT_FULL
    return LimitReached(
        f"the context holds {window.tokens:,} of {window.size:,} tokens and cannot be made to "
        f"fit{why}. The largest parts: {named}. A reply needs {MIN_OUTPUT_TOKENS:,} tokens, and "
        f"{window.reserve:,} are reserved for estimation errors",
        limit="context",
        hint=HINT_FIXED if fixed > LARGE_FIXED_SHARE * window.size else hint,
    )
