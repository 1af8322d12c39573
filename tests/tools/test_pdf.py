"""Read of PDFs: pages, limits, and broken or malicious files."""

import io
import zlib
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter

from ctxagent.tools import pdf_pages
from ctxagent.tools.read import MAX_PAGE_CHARS

from ..support.documents import pdf, pdf_of_objects
from .test_read import read, refusal


def test_a_pdf_is_shown_by_page(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("Walrus", "Herring"))
    output = read(tmp_path, "a.pdf")
    assert output.text == ("[a.pdf: PDF, 2 pages]\n\n## Page 1\n\nWalrus\n\n## Page 2\n\nHerring")
    assert output.details == {"path": str(tmp_path / "a.pdf"), "pages": 2}
    assert output.blocks is None


def test_offset_and_limit_count_pages(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(*(f"Number {n}" for n in range(1, 8))))
    text = read(tmp_path, "a.pdf", offset=3, limit=2).text
    assert "## Page 3\n\nNumber 3\n\n## Page 4\n\nNumber 4" in text
    assert "Number 2" not in text
    assert text.endswith("[pages 3-4 of 7; go on with offset=5]")
    assert read(tmp_path, "a.pdf", offset=7).text.endswith("Number 7")
    assert refusal(tmp_path, "a.pdf", offset=8) == "a.pdf has 7 pages; offset=8 is past its end."


def test_the_title_is_named(tmp_path: Path) -> None:
    writer = PdfWriter(PdfReader(io.BytesIO(pdf("Walrus"))))
    writer.add_metadata({"/Title": "On\nwalruses\x1b[31m"})
    writer.write(tmp_path / "a.pdf")
    assert read(tmp_path, "a.pdf").text.startswith("[a.pdf: PDF, 1 page; title: On walruses")


def test_an_answer_is_bounded_and_ends_at_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(*["walrus " * 2_000] * 20))
    text = read(tmp_path, "a.pdf").text
    assert len(text) < MAX_PAGE_CHARS + 1_000
    assert text.endswith("[pages 1-7 of 20; go on with offset=8]")


def test_a_page_that_is_too_long_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("w" * (MAX_PAGE_CHARS + 7), "Herring"))
    text = read(tmp_path, "a.pdf").text
    assert f"[Page 1 has {MAX_PAGE_CHARS + 7:,} characters and is cut" in text
    assert text.endswith("[pages 1-1 of 2; go on with offset=2]")


def test_pages_without_text_are_probably_scanned(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("", "", "Herring"))
    assert "scanned" not in read(tmp_path, "a.pdf").text
    text = read(tmp_path, "a.pdf", limit=2).text
    assert "no text in these pages: they are probably scanned" in text
    assert "pdftoppm -r 100 -png -f 1 -l 2" in text


@pytest.mark.parametrize(("password", "opens"), [("", True), ("walrus", False)])
def test_an_encrypted_pdf(tmp_path: Path, password: str, opens: bool) -> None:
    writer = PdfWriter(PdfReader(io.BytesIO(pdf("Secret"))))
    writer.encrypt(password, "owner", algorithm="AES-256")
    writer.write(tmp_path / "a.pdf")
    if opens:
        assert "Secret" in read(tmp_path, "a.pdf").text
    else:
        said = refusal(tmp_path, "a.pdf")
        assert "a.pdf, a PDF, cannot be read: it is encrypted and needs a password" in said
        assert "qpdf" in said


@pytest.mark.parametrize("data", [b"%PDF-1.4 nothing", pdf("Walrus")[:60], b"%PDF-"])
def test_a_broken_pdf_names_the_next_step(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.pdf").write_bytes(data)
    said = refusal(tmp_path, "a.pdf")
    assert said.startswith("a.pdf, a PDF, cannot be read: ")
    assert said.endswith("Look into it with Bash (pdfinfo, pdftotext, strings).")


def test_a_broken_page_does_not_affect_other_pages(tmp_path: Path) -> None:
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>",
        b"<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources 7>>",
        b"<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources<</Font<</F1 6 0 R>>>>>>",
        b"<</Length 38>>stream\nBT /F1 18 Tf 20 100 Td (Walrus) Tj ET \nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    (tmp_path / "a.pdf").write_bytes(pdf_of_objects(objects))
    text = read(tmp_path, "a.pdf").text
    assert "## Page 2\n\nWalrus" in text


def slow_pdf() -> bytes:
    """Return a PDF whose second page takes endlessly: a small stream with many operators."""
    operators = zlib.compress(b"q Q\nBT ET\n" * 10_000_000, 9)
    packed = b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(operators), operators)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 4 0 R]/Count 2>>",
        b"<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources<</Font<</F1 6 0 R>>>>>>",
        b"<</Type/Page/Parent 2 0 R/Contents 7 0 R/Resources<</Font<</F1 6 0 R>>>>>>",
        b"<</Length 38>>stream\nBT /F1 18 Tf 20 100 Td (Walrus) Tj ET \nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        packed,
    ]
    return pdf_of_objects(objects)


@pytest.mark.variants
@pytest.mark.parametrize("in_form", [False, True])
def test_a_page_that_is_too_large_when_unpacked_says_so(tmp_path: Path, *, in_form: bool) -> None:
    """On the page itself, and in a form on it, which pypdf skips."""
    blanks = zlib.compress(b" " * (100 << 20), 9)
    large = b"/Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(blanks), blanks)
    shows_form = b"<</Length 6>>stream\n/X Do \nendstream"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</XObject<</X 5 0 R>>>>>>",
        shows_form if in_form else b"<<" + large,
        b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</ProcSet[/PDF]>>" + large,
    ]
    (tmp_path / "a.pdf").write_bytes(pdf_of_objects(objects))
    text = read(tmp_path, "a.pdf").text
    assert "[This page cannot be read: it is too large when it is unpacked" in text
    assert "scanned" not in text


@pytest.mark.slow
def test_a_malicious_pdf_only_ends_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf_pages, "MAX_SECONDS", 3)
    (tmp_path / "a.pdf").write_bytes(slow_pdf())
    text = read(tmp_path, "a.pdf").text
    assert "## Page 1\n\nWalrus" in text
    assert "Page 2" in text
    assert "cannot be read" in text
