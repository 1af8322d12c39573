"""The images that stay in a request, and those removed when a server refuses it."""

from pathlib import Path
from typing import Any

import pytest

from ctxagent.agent.compaction.layers import images
from ctxagent.agent.context.view import View, fold
from ctxagent.agent.errors import RequestRejected
from ctxagent.agent.events import TurnFinished
from ctxagent.agent.models.messages.model import HINTS
from ctxagent.agent.models.refusals import classify_answer, says_no_images
from ctxagent.agent.models.scripted import ScriptedModel, Step
from ctxagent.agent.session.entries import Assistant, Entry, Mask, ToolResult

from ..e2e.test_images import png
from ..support.sessions.conversation import Conversation

DATA = "iVBORw0KGgo" + "A" * 1_000


def image(size: int = len(DATA)) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": DATA.ljust(size, "A")}
    return {"type": "image", "source": source}


def view_of(*sizes: int) -> View:
    """A view with a call and an image of each size, all unseen except as `replied` says."""
    calls = [
        {"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"path": f"{n}.png"}}
        for n in range(len(sizes))
    ]
    entries: list[Entry] = [Assistant(seq=1, content=calls, usage={}, stop_reason=None, model="m")]
    for n, size in enumerate(sizes):
        entries.append(ToolResult(seq=n + 2, tool_use_id=f"t{n}", content=[image(size)]))
    return fold(entries)


def gone(view: View, unseen: set[int]) -> list[int]:
    """The numbers of the images that the plan removes."""
    return [int(target["tool_use_id"][1:]) for target in images.plan(view, unseen)]


@pytest.mark.parametrize(
    ("sizes", "unseen", "expected"),
    [
        ([2_000] * 20, 0, []),
        ([2_000] * 21, 21, [0]),  # as many new ones as fit
        ([2_000] * 21, 1, list(range(11))),  # once an edit is due, half of the room is made free
        ([2_000] * 21, 12, list(range(9))),
        ([5 << 20] * 4, 4, []),
        ([5 << 20] * 5, 5, [0]),
        ([5 << 20] * 5, 1, [0, 1, 2]),
        ([2_000, 5 << 20, 5 << 20, 5 << 20, 5 << 20, 2_000], 6, [0, 1]),
    ],
)
def test_the_newest_stay(sizes: list[int], unseen: int, expected: list[int]) -> None:
    view = view_of(*sizes)
    new = {item.seq for item in view.items[len(view.items) - unseen :]}
    assert gone(view, new) == expected


def test_a_view_within_the_bounds_is_not_edited_again() -> None:
    view = view_of(*[2_000] * 21)
    view.add(Mask(seq=99, layer="microcompact", targets=images.plan(view, set()), tokens_before=0,
                  tokens_after=0, trigger=""))  # fmt: skip
    assert images.plan(view, set()) == []


def test_images_among_more_text_leave_the_text() -> None:
    text = "[a.ipynb: notebook, 1 cell]\n\n## Cell 1\nplot()\n[image 1]"
    view = view_of(*[10] * 21)
    item = view.items[1]
    item.blocks[0]["content"] = [{"type": "text", "text": text}, image(), image()]
    first, *others = [target["stub"] for target in images.plan(view, set())]
    assert first.startswith(f'{text}\n[Read "0.png" · 2 images left out: at most 20 images')
    assert all(stub.startswith('[Read "') and "\n" not in stub for stub in others)


class Refusing(ScriptedModel):
    """A model whose server refuses requests with more than `limit` images."""

    limit = 1
    words = "too many images"
    status = 400

    async def stream(self, request: Any) -> Any:
        text = str(request.messages)
        if text.count("'image'") > self.limit:
            raise classify_answer(self.status, self.words, model=self.id, headers={}, hints=HINTS)
        async for event in super().stream(request):
            yield event


def play(tmp_path: Path, *, limit: int, words: str, status: int = 400) -> Conversation:
    """Read one image, then two more."""
    project = tmp_path / "project"
    project.mkdir()
    for number in range(3):
        (project / f"{number}.png").write_bytes(png(8, 8))
    reads = [("Read", {"path": f"{number}.png"}) for number in range(3)]
    model = Refusing([Step(tools=reads[:1]), Step(tools=reads[1:]), Step(text="Done.")])
    model.limit, model.words, model.status = limit, words, status
    return Conversation(project, model=model)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("words", "status", "limit", "left"),
    [
        ("too many images", 400, 2, [1, 2]),  # those that were taken before go first
        ("the model has no vision", 422, 0, []),
        ("request_too_large", 413, 2, [1, 2]),
        ("messages.4.content.0: Input should be valid", 400, 2, [0, 2]),  # the one that is named
        ("messages.99.content.0: image", 400, 2, [1, 2]),
        ("Bad Request", 400, 1, [0]),  # no image is named: what is new is the cause
    ],
)
def test_refused_images_are_removed(
    tmp_path: Path, words: str, status: int, limit: int, left: list[int]
) -> None:
    talk = play(tmp_path, limit=limit, words=words, status=status)
    assert talk.say("look") == TurnFinished("ok", "Done.")
    shown = {int(r.call.argument[0]) for r in images.results_with_images(talk.agent.view)}
    if "content" in words and len(left) == 2 and 0 in left:
        assert shown in ({0, 1}, {0, 2})  # whichever of the two was read first
    else:
        assert shown == set(left)
    assert (
        talk.agent.model.limits is None or talk.agent.model.limits.window == 200_000
    )  # nothing is learned


def test_other_refusals_are_reported(tmp_path: Path) -> None:
    talk = play(tmp_path, limit=-1, words="Bad Request")
    finished = talk.say("look")
    assert finished.status == "error"
    assert finished.error
    assert finished.error["type"] == RequestRejected.__name__
    assert "mask" not in talk.kinds()


@pytest.mark.parametrize(
    "words",
    [
        "m does not support image input",
        "This model doesn't support the image content block that you provided",
        "At most 0 image(s) may be provided in one prompt",
        "image_url is only supported by certain models",
        "Image input is not enabled for this model",
        "multimodal content is not supported",
    ],
)
def test_refusals_that_mean_no_images(words: str) -> None:
    assert says_no_images(words)


@pytest.mark.parametrize(
    "words",
    [
        "messages.2.content.0.image.source.base64.data: Could not process image",
        "the server does not support image format TIFF",
        "does not accept images larger than 5 MB",
        "does not support image/tiff",
        "image exceeds 5 MB maximum: 5252052 bytes > 5242880 bytes",
        "image dimensions exceed max allowed size for many-image requests: 2000 pixels",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_refusals_of_a_single_image(words: str) -> None:
    assert not says_no_images(words)
