"""Session files for tool results: large texts, images, and outputs that were written to a file
while the command ran.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ...tools import image as images
from ...tools.base import Context, FiledOutput, Output, Tool
from ...tools.system.output_file import OutputFile
from ..compaction.layers import demote
from ..compaction.layers.demote import OVERSIZE_GATE, demote_to_file, file_name
from ..compaction.policy import Policy
from ..context.line_numbers import unnumbered
from ..events import Emit, Notice
from ..lazy import dataclass
from ..session.archive import OFFLOADED, offload, offload_image, open_partial


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Writes the results of one conversation to files of its session."""

    tools: Mapping[str, Tool[Any]]
    context: Context
    policy: Policy
    next_seq: Callable[[], int]
    emit: Emit

    def opener(self, tool: str, id: str) -> Callable[[], OutputFile] | None:
        """Return a function that creates the file for the output of call `id` while it runs; None
        without a session folder.
        """
        folder = self.context.session_dir
        if folder is None:
            return None
        limit = self.context.max_output_bytes
        return lambda: open_partial(folder, tool, id, limit)

    def store(self, tool: str, output: Output, details: dict[str, Any]) -> tuple[str, str | None]:
        """Return the text for the model, and the session file with the whole output or None. A
        large text is moved to a file and replaced by a reference. Facts about the file are added to
        `details`.
        """
        if "printed_bytes" in details:
            sizes = (
                f"{details['printed_bytes']:,} bytes, {details['kept_bytes']:,} of them are kept"
            )
            told = f"the output of {tool} is cut: it printed {sizes}: {details.get('cut_by')}"
            self.emit(Notice("warning", told))
        if output.whole:
            return self._save_whole_text(tool, output)
        if output.filed:
            return self._finish_file(tool, output.text, output.filed, details)
        folder = self.context.session_dir
        if folder is None:
            return output.text, None
        room = self.tools[tool].max_result_tokens if tool in self.tools else None
        try:
            found = demote_to_file(
                output.text,
                tool=tool,
                seq=self.next_seq(),
                folder=folder,
                policy=self.policy,
                room=room,
            )
        except OSError as error:
            details["gate"] = OVERSIZE_GATE
            details["not_offloaded"] = str(error.strerror)
            told = f"the output of {tool} stays in the context: it cannot be saved in {folder}"
            self.emit(Notice("warning", f"{told}: {error.strerror}"))
            return output.text, None
        if found is None:
            if not self.policy.line_numbers:
                details.update(unnumbered(tool, output.text))
            return output.text, None
        plan, path = found
        details["gate"] = OVERSIZE_GATE
        details["tokens_saved"] = plan.saved
        return plan.reference, path

    def save_original(self, output: Output) -> dict[str, Any]:
        """Save the original of an image to a session file, and return its details. Return an empty
        dict if there is no image or it cannot be saved.
        """
        folder, data = self.context.session_dir, output.original
        if not data or folder is None:
            return {}
        try:
            path = offload_image(folder, data, images.format_of(data).lower() or "bin")
        except OSError as error:
            told = f"only the log has the original image: it cannot be saved in {folder}"
            self.emit(Notice("warning", f"{told}: {error.strerror}"))
            return {}
        digest = hashlib.sha256(data).hexdigest()
        return {"image": {"path": path, "sha256": digest, "bytes": len(data)}}

    def _save_whole_text(self, tool: str, output: Output) -> tuple[str, str | None]:
        """Save the whole text of a partial output to a session file. Return the text with the path
        added, and the file.
        """
        folder, seq = self.context.session_dir, self.next_seq()
        if folder is None:
            return output.text, None
        path = folder / OFFLOADED / file_name(tool, seq, datetime.now())
        try:
            offload(path, output.whole)
        except OSError as error:
            return f"{output.text}\n[The rest cannot be kept: {error.strerror}]", None
        text = f"{output.text}\n[All of it: Read or Grep {path}, or Recall #{seq}]"
        return text, str(path.relative_to(folder))

    def _finish_file(
        self, tool: str, text: str, filed: FiledOutput, details: dict[str, Any]
    ) -> tuple[str, str | None]:
        """Rename the file of an output to its final name, or remove it if the text stays in the
        context.
        """
        seq, file = self.next_seq(), filed.file
        try:
            file.move(file.path.with_name(file_name(tool, seq, datetime.now())))
        except OSError as error:  # the file keeps its name
            self.emit(Notice("warning", f"{file.path} cannot be renamed: {error.strerror}"))
        name = f"{OFFLOADED}/{file.path.name}"
        plan = demote.plan(text, path=str(file.path), policy=self.policy, tool=tool, filed=filed)
        if plan is None and not filed.is_needed:
            file.remove()
            return text, None
        if plan is None:
            kept = "What is kept of it" if file.cut else "All of it"
            return f"{text}\n[{kept}: Read or Grep {file.path}, or Recall #{seq}]", name
        details["gate"] = OVERSIZE_GATE
        details["tokens_saved"] = plan.saved
        return plan.reference, name
