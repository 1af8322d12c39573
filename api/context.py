"""The context: the view of a log, requests, token counts, the window, and compaction."""

from typing import TYPE_CHECKING

from ..agent.lazy import names_on_demand

if TYPE_CHECKING:
    from ..agent.compaction.breakdown import break_down
    from ..agent.compaction.document import SummaryDocument
    from ..agent.compaction.document import render as render_summary
    from ..agent.compaction.engine import WHILE_AWAY, CompactionEngine
    from ..agent.compaction.history import acts, readable_trigger
    from ..agent.compaction.host import BareHost, CompactionPurpose
    from ..agent.compaction.layers import truncate
    from ..agent.compaction.layers.clear import (
        BY_REF,
        KEPT_IN,
        ClearResults,
        plan_all,
        recall_pages,
    )
    from ..agent.compaction.layers.known import LAYERS, done_by, known_layers, ordered
    from ..agent.compaction.layers.layer import Layer
    from ..agent.compaction.layers.move import (
        MovedText,
        MoveResults,
        move_message,
        move_to_file,
        without_file,
    )
    from ..agent.compaction.layers.truncate import file_sha256
    from ..agent.compaction.listed_edits import ListedEdit, listed_edits
    from ..agent.compaction.policy import PRESETS, Policy, policy_of
    from ..agent.compaction.recovery import RECOVERY_TOPIC, session_intent
    from ..agent.compaction.summary.block import rebuild_block_request
    from ..agent.compaction.summary.merge import document_from_ledger
    from ..agent.compaction.summary.request import max_summary_tokens, rebuild_chunk_messages
    from ..agent.compaction.summary.shorten import shortened_to
    from ..agent.context import tokens
    from ..agent.context.items import (
        COMPACTION,
        SUMMARY_SOURCE,
        THINKING,
        UNNUMBERED,
        Item,
        shown_blocks,
        unnumbered,
    )
    from ..agent.context.request import Request, build_messages, build_request, with_question
    from ..agent.context.view import REFUSAL, REINSERTED_SOURCES, Folding, View, fold, start_folding
    from ..agent.context.window import LEVELS, LearnedWindow, Window, learn_from_refusal, measure
else:
    __getattr__ = names_on_demand(__name__, __file__)

__all__ = [
    "BY_REF",
    "COMPACTION",
    "KEPT_IN",
    "LAYERS",
    "LEVELS",
    "PRESETS",
    "RECOVERY_TOPIC",
    "REFUSAL",
    "REINSERTED_SOURCES",
    "SUMMARY_SOURCE",
    "THINKING",
    "UNNUMBERED",
    "WHILE_AWAY",
    "BareHost",
    "ClearResults",
    "CompactionEngine",
    "CompactionPurpose",
    "Folding",
    "Item",
    "Layer",
    "LearnedWindow",
    "ListedEdit",
    "MoveResults",
    "MovedText",
    "Policy",
    "Request",
    "SummaryDocument",
    "View",
    "Window",
    "acts",
    "break_down",
    "build_messages",
    "build_request",
    "document_from_ledger",
    "done_by",
    "file_sha256",
    "fold",
    "known_layers",
    "learn_from_refusal",
    "listed_edits",
    "max_summary_tokens",
    "measure",
    "move_message",
    "move_to_file",
    "ordered",
    "plan_all",
    "policy_of",
    "readable_trigger",
    "rebuild_block_request",
    "rebuild_chunk_messages",
    "recall_pages",
    "render_summary",
    "session_intent",
    "shortened_to",
    "shown_blocks",
    "start_folding",
    "tokens",
    "truncate",
    "unnumbered",
    "with_question",
    "without_file",
]
