"""The pages that are written from docstrings say what the docstrings say now."""

import pytest

from tests.docs.reference_pages import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/{name} is old; run python -m tests.docs.reference_pages"


@pytest.mark.parametrize("name", PAGES)
def test_every_key_has_a_meaning(name: str) -> None:
    assert " |  |\n" not in PAGES[name]()
