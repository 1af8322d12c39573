"""Error answers: which ones are retried, and the messages for the others."""

from typing import Any

import pytest

from ctxagent.agent.errors import KeyRefused, PromptTooLong, RequestRejected
from ctxagent.agent.models.refusals import ServerHints, classify_answer, says_no_images
from ctxagent.agent.models.retry import Fault

HINTS = ServerHints("MY_URL", "MY_KEY")


def classified(status: int, words: str = "", **more: Any) -> Fault | RequestRejected:
    given = {"headers": {}, "model": "walrus", "hints": HINTS, **more}
    return classify_answer(status, words, **given)


def fault(status: int, words: str = "", **more: Any) -> Fault:
    found = classified(status, words, **more)
    assert isinstance(found, Fault)
    return found


def refused(status: int, words: str = "", **more: Any) -> RequestRejected:
    found = classified(status, words, **more)
    assert isinstance(found, RequestRejected)
    return found


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (408, "the server failed (408)"),
        (409, "the server failed (409)"),
        (425, "the server failed (425)"),
        (429, "the rate limit is reached"),
        (500, "the server failed (500)"),
        (503, "the server is overloaded"),
        (529, "the model is overloaded"),
        (599, "the server failed (599)"),
    ],
)
def test_temporary_errors_are_retried(status: int, reason: str) -> None:
    assert fault(status).reason == reason
    found = fault(status, " it \n is  so ", request_id="r", headers={"retry-after": "3"})
    assert found.reason == f"{reason}: it is so"
    assert (found.wait, found.status, found.request_id) == (3.0, status, "r")
    assert found.overloaded == (status in (503, 529))


def test_the_advice_of_the_server_counts_unless_no_retry_could_help() -> None:
    yes, no = {"x-should-retry": "true"}, {"x-should-retry": "false"}
    for status in (429, 500, 529):
        refused(status, headers=no)
    for status in (400, 422):
        fault(status, headers=yes)
        refused(status)
    for status in (401, 402, 403, 404, 413):
        refused(status, headers=yes)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("invalid_api_key", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("model_not_found", 404),
        ("request_too_large", 413),
        ("invalid_prompt", 400),
        ("cyber_policy", 400),
        ("unsupported_value", 400),
        ("failed_to_download_image", 400),
        ("401", 401),
    ],
)
def test_in_mid_stream_the_kind_decides(kind: str, status: int) -> None:
    assert refused(200, "no", kind=kind).status == status


@pytest.mark.parametrize(
    ("kind", "reason", "overloaded"),
    [
        ("overloaded_error", "the model is overloaded", True),
        ("rate_limit_error", "the rate limit is reached", False),
        ("rate_limit_exceeded", "the rate limit is reached", False),
        ("server_error", "the server failed (server_error)", False),
        ("529", "the model is overloaded", True),
        ("", "the server failed (500)", False),
        ("52", "the server failed (52)", False),
    ],
)
def test_in_mid_stream_unknown_errors_are_retried(kind: str, reason: str, overloaded: bool) -> None:
    found = fault(200, kind=kind)
    assert (found.reason, found.overloaded) == (reason, overloaded)


def test_an_empty_account_is_not_retried() -> None:
    found = refused(429, "You exceeded your quota", kind="insufficient_quota")
    assert (type(found), found.status) == (KeyRefused, 402)
    assert found.message == "the account cannot pay for this (402): You exceeded your quota"


@pytest.mark.parametrize(
    ("status", "error", "message", "hint"),
    [
        (400, RequestRejected, "the server refused the request (400): no", ""),
        (401, KeyRefused, "the key was not accepted (401): no", "Check MY_KEY, and that it"),
        (402, KeyRefused, "the account cannot pay for this (402): no", "plan and credit"),
        (
            403,
            KeyRefused,
            "the key has no permission for this (403): no",
            "a key with access to walrus",
        ),
        (404, RequestRejected, "not found (404): no", "model 'walrus' (--model), and that MY_URL"),
        (404, RequestRejected, "not found (404): no", "ends with the version, such as /v1."),
        (302, RequestRejected, "redirects to another address (302): no", "set MY_URL to it"),
    ],
)
def test_what_a_refusal_says(
    status: int, error: type[RequestRejected], message: str, hint: str
) -> None:
    found = refused(status, "no", request_id="r")
    assert type(found) is error
    assert message in found.message
    assert hint in found.hint
    assert (found.status, found.request_id) == (status, "r")


def test_a_redirect_is_named_without_its_query() -> None:
    headers = {"location": "https://me:word@other.example/v1?key=secret"}
    found = refused(307, "MovedText", headers=headers)
    assert found.message.endswith("(307): https://…@other.example/v1")


TOO_LONG = {
    "prompt is too long: 208310 tokens > 200000 maximum": (208_310, 200_000),
    "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000": (
        190_000, 200_000,
    ),
    "This model's maximum context length is 128,000 tokens. However, your messages resulted in "
    "130,005 tokens.": (130_005, 128_000),
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context": (
        40_000, 32_768,
    ),
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.": (
        140_000, 131_072,
    ),
    "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).": (
        1_100_000, 1_048_576,
    ),
    "request (9000 tokens) exceeds the available context size (8192 tokens)": (9_000, 8_192),
    "Input is too long for requested model.": None,
    "The context window is exceeded": None,
    "Requested tokens exceed the model's context size": None,
    "the prompt is greater than the context length": None,
    "prompt is too long: 12 tokens > 10 maximum": None,  # implausible numbers
    "prompt is too long: 9999999999999 tokens > 200000 maximum": None,
}  # fmt: skip


@pytest.mark.parametrize("words", TOO_LONG)
def test_a_prompt_that_is_too_long_is_told_with_its_figures(words: str) -> None:
    found = refused(400, words, request_id="r")
    assert isinstance(found, PromptTooLong)
    assert (found.tokens, found.maximum) == (TOO_LONG[words] or (None, None))
    assert (found.status, found.request_id, found.message) == (400, "r", words)
    assert not isinstance(refused(404, words), PromptTooLong)


def test_a_prompt_may_be_too_long_by_its_kind_or_its_size() -> None:
    assert isinstance(refused(200, "no", kind="context_length_exceeded"), PromptTooLong)
    found = refused(413, "Request entity too large", request_id="r")
    assert isinstance(found, PromptTooLong)
    assert found.message == (
        "the request is too large for the server (413): Request entity too large"
    )
    assert (found.status, found.request_id) == (413, "r")
    assert not isinstance(refused(400, "messages: at least one is needed"), PromptTooLong)


NO_IMAGES = (
    "this model does not support images",
    "The model doesn't support image input",
    "No endpoints found that support image input",
    "walrus cannot accept an image",
    "image input is not supported",
    "image_url is only supported by certain models",
    "Images are not enabled for this model",
    "walrus is not a multimodal model",
    "Missing data required for image input",
    "At most 0 image(s) may be provided in one prompt",
    "unknown variant `image_url`, expected `text`",
)
ONE_IMAGE = (
    "image/tiff is not supported",
    "does not support image/bmp",
    "does not support images larger than 5 MB",
    "does not support image formats other than PNG",
    "does not support image URLs",
    "messages.3.content.0.image.source: the image exceeds 5 MB",
)


@pytest.mark.parametrize("words", NO_IMAGES)
def test_a_model_without_images_is_no_fault_whatever_the_status(words: str) -> None:
    assert says_no_images(words)
    for status in (400, 404, 500):
        assert refused(status, words).status == status
    assert refused(200, words, kind="500").status == 500
    refused(500, words, headers={"x-should-retry": "true"})


@pytest.mark.parametrize("words", ONE_IMAGE)
def test_an_image_that_is_refused_says_nothing_of_others(words: str) -> None:
    assert not says_no_images(words)
    fault(500, words)


@pytest.mark.parametrize(
    "words",
    ["walrus does not support tools", "No endpoints found that support tool use",
     "does not support function calling", "No endpoints found that support the use of tools"],
)  # fmt: skip
def test_a_model_without_tools_needs_another_model(words: str) -> None:
    assert refused(400, words).hint == "Use a model that calls tools: --model ID."
