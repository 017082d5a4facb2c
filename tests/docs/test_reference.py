"""The Python reference of the site: every public name has a docstring."""

import sys

from tests.support import ROOT

sys.path.insert(0, str(ROOT / "docs"))
import docs_site


def test_every_public_name_says_what_it_is():
    listed = [entry for page in docs_site.public().values() for entry in docs_site.walk(page)]
    assert len(listed) > 100
    assert [entry.name for entry in listed if not entry.doc] == []


def test_names_of_the_reference_can_be_found():
    import torch  # noqa: F401

    import torch_npu  # noqa: F401

    names = [entry.name for page in docs_site.public().values() for entry in docs_site.walk(page)]
    assert len(names) == len(set(names))
    for name in names:
        found = eval(name.rpartition(".")[0], {"torch": torch, "torch_npu": torch_npu})
        assert hasattr(found, name.rpartition(".")[2])
