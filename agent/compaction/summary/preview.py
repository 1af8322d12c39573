"""The estimated effect of a summary, as shown before it is made."""

from ...lazy import dataclass

MIN_WORTHWHILE_SHARE = 0.2  # of the context, saved by a manual summary

PreviewRow = tuple[int, str, int]  # seq, headline, tokens


@dataclass(frozen=True, slots=True)
class SummaryPreview:
    """The estimated effect of a summary made now."""

    kept: list[PreviewRow]
    masked: list[PreviewRow]  # kept as stubs
    dropped: list[PreviewRow]
    fixed: int  # tokens of the system prompt and the tools
    tokens_before: int  # size of the context
    tokens_after_estimate: int
    call_tokens: int  # of the request for the summary
    call_cost_usd: float | None

    @property
    def share_saved(self) -> float:
        """The share of the context that the summary saves; 0 if the context would grow."""
        return max(0.0, 1 - self.tokens_after_estimate / max(1, self.tokens_before))

    @property
    def is_worthwhile(self) -> bool:
        """True if a manual summary would save enough."""
        return self.share_saved >= MIN_WORTHWHILE_SHARE
