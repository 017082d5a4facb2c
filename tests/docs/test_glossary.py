"""docs/glossary.md: one line per term, and the file where the term lives says the word."""

import re

import pytest

from tests.support import ROOT

ROW = re.compile(r"^\| (?!term|-)([^|]+?) \| ([^|]+?) \| `([^`]+)` \|$", re.MULTILINE)
TERMS = ROW.findall((ROOT / "docs" / "glossary.md").read_text())


def test_the_glossary_lists_each_term_once():
    terms = [term.lower() for term, _, _ in TERMS]
    assert len(terms) > 80
    assert sorted(terms) == sorted(set(terms))


def words(text: str) -> str:
    """Words with one space between them: of `event_count.h`, `EventCount` and prose alike."""
    return " ".join(re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", text)).lower()


@pytest.mark.parametrize(("term", "file"), [(term, file) for term, _, file in TERMS])
def test_term_is_a_word_of_its_file(term, file):
    text = words(file + " " + (ROOT / file).read_text())
    assert re.search(rf"\b{words(term)}(s|es)?\b", text), f"{file} says nothing of {term}"
