"""Limit the images of a request: the newest images stay, and stubs with refs replace the others.

Servers refuse a request with too many or too large images, and then every later request with the
same images. The limits are those of the strictest servers of the Messages API.
"""

from collections.abc import Iterable
from typing import Any

from ....tools.offered import EVERY, Offered, Phrase
from ....tools.system.phrasing import shorten
from ....tools.system.unicode import replace_unprintable
from ...context.items import ViewResult
from ...context.request import build_messages
from ...context.view import View
from ...lazy import dataclass, regex
from .layer import stub_target

MAX_ARGUMENT_CHARS = 80  # characters of a call's main argument in a stub
MAX_IMAGES = 20  # in a request; with more images, servers limit the side to 2,000 pixels
MAX_IMAGE_BYTES = 20 * 1024 * 1024  # of base64 in a request, which may have 32 MB
MAX_CAPTION_LINES = 2  # with more text next to the image, the stub keeps the text
KEPT_SHARE = 0.5  # of both limits, so that not every further image edits history

OVER_BOUND: tuple[Phrase, ...] = (
    f"at most {MAX_IMAGES} images, {MAX_IMAGE_BYTES >> 20} MB in all, go into one request",
    "; {Recall} shows it again",
)
NOT_TAKEN: tuple[Phrase, ...] = (
    "this model takes no images",
    "; {Recall} shows it to one that does",
)
REFUSED = "the server refused the request with it"

_PLACE = regex(r"messages\.(\d+)\.content\.(\d+)\b")


@dataclass(slots=True)
class _Total:
    images: int = 0
    size: int = 0  # of base64

    def add(self, blocks: list[dict[str, Any]]) -> None:
        self.images += len(blocks)
        sources = (block.get("source") for block in blocks)
        self.size += sum(len(str(s.get("data", ""))) for s in sources if isinstance(s, dict))

    def within(self, share: float) -> bool:
        return self.images <= share * MAX_IMAGES and self.size <= share * MAX_IMAGE_BYTES


def plan(view: View, unseen: set[int], offered: Offered = EVERY) -> list[dict[str, Any]]:
    """Return mask targets for the oldest results with images, so that the others fit the limits.
    Return an empty list if all fit.

    Once a limit is exceeded, images that the model has seen may use only half of it. `unseen` has
    the seqs of the results that the model has not seen.
    """
    total, over = _Total(), []
    results = results_with_images(view)
    for result in results:
        total.add(result.images)
    if total.within(1.0):
        return []
    kept = _Total()
    for result in reversed(results):
        kept.add(result.images)
        if not kept.within(1.0 if result.item.seq in unseen else KEPT_SHARE):
            over.append(result)
    return targets(reversed(over), offered.say(*OVER_BOUND))


def targets(results: Iterable[ViewResult], why: str) -> list[dict[str, Any]]:
    """Return mask targets that replace results with images by stubs."""
    return [stub_target(result, _stub(result, why)) for result in results]


def results_with_images(view: View) -> list[ViewResult]:
    """Return the unmasked results with images, oldest first."""
    return [result for result in view.results() if not result.masked and result.images]


def named_in(refusal: str, view: View) -> list[ViewResult]:
    """Return the results with the image at the position that a server's refusal names."""
    place = _PLACE.search(refusal)
    if not place:
        return []
    try:
        block = build_messages(view.items)[int(place[1])]["content"][int(place[2])]
    except IndexError:
        return []
    call = block.get("tool_use_id")
    return [
        result
        for result in results_with_images(view)
        if result.call.id == call or block in result.images  # `images`: for attachments
    ]


def _stub(result: ViewResult, why: str) -> str:
    argument = shorten(result.call.argument, MAX_ARGUMENT_CHARS)
    headline = f'{result.call.name} "{argument}"'
    what = "image" if len(result.images) == 1 else f"{len(result.images)} images"
    line = replace_unprintable(f"[{headline} · {what} left out: {why} · #{result.item.seq}]")
    blocks = result.block["content"]
    text = "\n".join(str(block["text"]) for block in blocks if block.get("type") == "text")
    return f"{text}\n{line}" if text.count("\n") >= MAX_CAPTION_LINES else line
