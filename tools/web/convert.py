"""Convert an HTML page to Markdown. This is a separate script, so that a malicious page that uses
endless time or memory only ends this process.

`python convert.py BASE_URL` reads the page on stdin and writes JSON with `title` and `text`. It
imports no module of ctxagent.
"""

import json
import os
import re
import resource
import sys
from typing import Any
from urllib.parse import urljoin

MAX_SECONDS = 30  # of computing
MAX_MEMORY_BYTES = 2 << 30
GONE = [
    "script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "canvas",
    "head", "link", "meta", "input", "button", "select", "textarea", "audio", "video",
]  # fmt: skip
HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0(?:\.0*)?\s*(?:;|!|$)"
    r"|font-size\s*:\s*0(?:\.0*)?[a-z%]*\s*(?:;|!|$)|(?:text-indent|left|top|right)\s*:\s*-\d{3,}"
    r"|clip-path\s*:\s*inset\(\s*(?:50|100)%|content-visibility\s*:\s*hidden",
    re.IGNORECASE,
)


def main(base: str, text: str) -> dict[str, str]:
    """Return the title of a page and its visible text."""
    from bs4 import BeautifulSoup, Comment
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(text, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    for tag in soup(GONE):
        tag.decompose()
    for text_node in list(soup.find_all(string=True)):
        if isinstance(text_node, Comment):
            text_node.extract()
    for tag in [each for each in soup.find_all(True) if not each.decomposed and is_hidden(each)]:
        if not tag.decomposed:
            tag.decompose()
    mains = soup.find_all("main") or soup.select('[role="main"]')
    body = mains[0] if len(mains) == 1 else soup.body or soup
    links = [(tag, "href") for tag in body("a")] + [(tag, "src") for tag in body("img")]
    for tag, name in links:
        link = str(tag.get(name) or "")
        tag[name] = urljoin(base, link) if not link.startswith(("data:", "javascript:")) else ""
    made = MarkdownConverter(heading_style="ATX", bullets="-")
    try:
        found = made.convert_soup(body)
    except RecursionError:  # nested too deeply: keep only the words
        found = "\n".join(body.stripped_strings)
    return {"title": title, "text": re.sub(r"\n{3,}", "\n\n", found).strip()}


def is_hidden(tag: Any) -> bool:
    """Return True if a tag's own attributes hide it from users."""
    if tag.has_attr("hidden") or str(tag.get("aria-hidden", "")).lower() == "true":
        return True
    return bool(HIDDEN_STYLE.search(str(tag.get("style", ""))))


if __name__ == "__main__":
    limit = int(os.environ["CPU_SECONDS"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    if sys.platform.startswith("linux"):  # macOS refuses this limit
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    found = main(sys.argv[1], sys.stdin.buffer.read().decode("utf-8", "replace"))
    json.dump(found, sys.stdout)
