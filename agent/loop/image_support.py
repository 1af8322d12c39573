"""Whether the model of a conversation takes images: the setting `model.images`, and what its
refusals have shown, which the log keeps for a resumed session."""

from typing import Protocol

from ..config.settings import ImagesMode
from ..errors import RequestRejected
from ..events import Emit, Notice
from ..models.base import Model
from ..models.retry import says_no_images
from ..session.entries import Entry, Note
from ..session.ledger import NO_IMAGES_TOPIC, Ledger

MAX_WHY_CHARS = 200


class ImageHost(Protocol):
    """A conversation as this needs it; `Agent` has these members."""

    model: Model
    ledger: Ledger

    @property
    def emit(self) -> Emit: ...

    def record(self, entry: Entry) -> Entry: ...


class ImageSupport:
    """Whether the models of one conversation take images."""

    def __init__(self, agent: ImageHost, setting: ImagesMode) -> None:
        self._agent, self._setting = agent, setting

    def is_there(self) -> bool:
        """Tell whether the model takes images, as far as is known."""
        if self._setting != "auto":
            return self._setting == "on"
        return self._agent.model.id not in self._agent.ledger.models_without_images

    def learn(self, refusal: RequestRejected) -> None:
        """Note that the model takes no images, if a refusal says so. Raises RecordError."""
        if self._setting != "auto" or not self.is_there() or not says_no_images(refusal.message):
            return
        model = self._agent.model.id
        self._agent.record(Note(topic=NO_IMAGES_TOPIC, text=model))
        why = refusal.message[:MAX_WHY_CHARS]
        told = f"{model} takes no images: a sentence stands for each from now on ({why})"
        self._agent.emit(Notice("warning", told))
