"""The subject of a commit: `room: what`, at most 72 characters. Called by git's hook with the file of the message, or
with a range (`python tools/check_subject.py main..HEAD`)."""

import re
import subprocess
import sys
from pathlib import Path

FORM = re.compile(r"(?:[a-z][\w./+-]*(?:, )?)+: \S.*")
LIMIT = 72


def problem(subject: str) -> str:
    """What is wrong with it; empty if nothing is. Git's own subjects may be as git makes them."""
    if re.match(r"Merge |Revert |fixup! |squash! ", subject):
        return ""
    if len(subject) > LIMIT:
        return f"expected at most {LIMIT} characters, got {len(subject)}: {subject}"
    return "" if FORM.fullmatch(subject) else f'expected "room: what", got: {subject}'


def subjects(argument: str) -> list[str]:
    if ".." in argument:
        log = ["git", "log", "--format=%s", argument]
        return subprocess.run(log, capture_output=True, text=True, check=True).stdout.splitlines()
    return Path(argument).read_text().splitlines()[:1]


if __name__ == "__main__":
    found = [text for argument in sys.argv[1:] for subject in subjects(argument) if (text := problem(subject))]
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    sys.exit(bool(found))
