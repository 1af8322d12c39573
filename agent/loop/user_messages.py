"""Record the user's messages."""

from base64 import b64decode

from ...tools.system.plural import count_of
from ..compaction.layers import demote
from ..errors import RecordError
from ..events import Notice, UserSaid
from ..launch import AttachedData
from ..session.entries import Content, User
from ..session.store import content_text
from .agent import AgentState
from .feature import IncomingMessage

LONG_MESSAGE_CHARS = 4_096  # shorter messages are never moved to a file


async def record_message(agent: AgentState, message: IncomingMessage) -> None:
    """Record a user message and show it. Images become attachments. A message that would fill the
    window is moved to a file, and a reference is recorded. Raises RecordError, and Veto if a
    feature rejects the message.
    """
    typed = message.content
    message = await agent.features.message_received(message)
    content, images = split_images(message.content)
    content = agent.log.redact(User(content=content)).content
    kept, offloaded = content, None
    if isinstance(content, str) and len(content) >= LONG_MESSAGE_CHARS:
        size, seq, folder = (await agent.model.window()).size, agent.log.last_seq + 1, agent.folder
        try:
            kept, offloaded = demote.demote_words(
                content, size=size, seq=seq, folder=folder, policy=agent.handle.policy
            )
        except OSError as error:
            text = f"cannot save the message in {folder}: {error.strerror}"
            raise RecordError(text) from error
    details = {}
    if message.content != typed:  # by a feature
        details["typed"] = content_text(agent.log.redact(User(content=typed)).content)
    agent.record(
        User(content=kept, mid_turn=message.mid_turn, details=details, offloaded=offloaded)
    )
    agent.emit(UserSaid(content_text(content), message.mid_turn))
    attached, before = (*images, *message.attached), agent.log.last_seq
    await agent.features.message_recorded(
        IncomingMessage(content, attached, message.verbatim, message.mid_turn)
    )
    if attached and agent.log.last_seq == before:
        text = "the message was sent without its attachments: no active feature handles them"
        agent.emit(Notice("warning", text))


def split_images(words: Content) -> tuple[Content, list[AttachedData]]:
    """Return a message without its images, and the images as attachments. Attachments are limited
    and cleared like tool results.
    """
    blocks = words if isinstance(words, list) else []
    found = [b["source"] for b in blocks if b.get("type") == "image"]
    if not found:
        return words, []
    texts_only = [str(b.get("text", "")) for b in blocks if b.get("type") == "text"]
    data = [b64decode(str(source.get("data"))) for source in found]
    images = [AttachedData(each, title="an image", name="Image") for each in data]
    return "\n\n".join(texts_only) or f"[{count_of(len(images), 'image')}]", images
