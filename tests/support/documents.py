"""PDFs and notebooks for tests."""

import base64
import json
from typing import Any


def pdf(*texts: str) -> bytes:
    """Return a PDF with a page for each text; "" is a page without text."""
    count = len(texts)
    kids = " ".join(f"{3 + number} 0 R" for number in range(count))
    font = 3 + 2 * count
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {count}>>".encode(),
    ]
    for number in range(count):
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents {3 + count + number} 0 R"
            f"/Resources<</Font<</F1 {font} 0 R>>>>>>".encode()
        )
    for text in texts:
        stream = f"BT /F1 18 Tf 20 100 Td ({text}) Tj ET".encode() if text else b""
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    return pdf_of_objects(objects)


def pdf_of_objects(objects: list[bytes]) -> bytes:
    """Return a PDF with numbered objects; the first is the root."""
    data, places = b"%PDF-1.4\n", list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start, size = len(data), len(objects) + 1
    data += b"xref\n0 %d\n0000000000 65535 f \n" % size + table
    return data + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, start)


def cell(
    kind: str, source: str, *outputs: dict[str, Any], run: int | None = None
) -> dict[str, Any]:
    """Return a cell; its source is a list of lines, as Jupyter writes it."""
    made: dict[str, Any] = {"cell_type": kind, "source": source.splitlines(keepends=True)}
    return made if kind == "markdown" else {**made, "outputs": [*outputs], "execution_count": run}


def stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


def picture(png: bytes) -> dict[str, Any]:
    data = {"image/png": base64.encodebytes(png).decode(), "text/plain": ["<Figure>"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def notebook(*cells: dict[str, Any]) -> str:
    metadata = {"language_info": {"name": "python"}}
    return json.dumps(
        {"cells": [*cells], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )
