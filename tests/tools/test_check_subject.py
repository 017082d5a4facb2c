"""tools/check_subject.py: which subjects of commits it takes."""

import subprocess
import sys

import pytest

from tests.support import ROOT


@pytest.mark.parametrize(
    "subject, complaint",
    [
        ("cmodel/conv: one plan for packed weights", ""),
        ("csrc, support: one answer to what a command touches", ""),
        ("Merge branch 'main' into next", ""),
        ("One plan for packed weights", 'expected "room: what"'),
        ("cmodel/conv:", 'expected "room: what"'),
        ("docs: " + "x" * 67, "expected at most 72 characters, got 73"),
    ],
)
def test_a_subject_is_a_room_and_what(tmp_path, subject, complaint):
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nA line of the body may be as long as it likes, and has no form of its own.\n")
    command = [sys.executable, ROOT / "tools" / "check_subject.py", message]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, bool(result.stderr)) == (bool(complaint), bool(complaint))
    assert complaint in result.stderr
