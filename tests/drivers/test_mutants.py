"""Drivers that are wrong in one way each (tests/drivers/mutants): the driver test alone finds them, says in which
command, and, where the bits tell, what the bug looks like."""

import ctypes
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.drivers.test_drivers import driver_test, library


@dataclass
class Mutant:
    name: str
    command: str  # what a message must name
    what: str
    looks: str  # part of the explanation
    found: bool = False
    named: bool = False
    explained: bool = False
    output: str = ""


def known_mutants() -> list[Mutant]:
    table = ctypes.CDLL(library("mutant")).npu_mutants
    table.restype = ctypes.c_char_p
    everyone = [Mutant(*line.split("\t")) for line in table().decode().splitlines()]
    assert len(everyone) >= 100
    # A fifth of them in the daily run; NPU_MUTANTS=all takes some minutes.
    return everyone if os.environ.get("NPU_MUTANTS") == "all" else everyone[2::5]


def try_out(mutant: Mutant) -> Mutant:
    arguments = ("--first", "--count", 40, "--limit", 2)
    result = driver_test(f"{library('mutant')}:bug={mutant.name}", *arguments)
    mutant.output = result.stdout.partition("FAIL")[2].partition("\nfailed: ")[0]
    failed = result.stdout.partition("\nfailed: ")[2]
    mutant.found = result.returncode in (1, 3)
    mutant.named = mutant.found and mutant.command in failed + mutant.output
    looks = " ".join(re.findall(r"looks like: (.*)", mutant.output))
    mutant.explained = mutant.found and bool(mutant.looks) and mutant.looks in looks
    return mutant


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(try_out, known_mutants()))


def test_the_right_driver_passes():
    result = driver_test(library("mutant"), "--exact", "--count", 30)
    assert result.returncode == 0, result.stdout


def test_all_but_a_few_planted_bugs_are_found_in_their_command(mutants):
    missed = [f"{m.name}: {m.what}" for m in mutants if not m.found]
    unnamed = [f"{m.name}: {m.output[:300]}" for m in mutants if m.found and not m.named]
    print("missed:", *missed, "not named:", *unnamed, sep="\n  ")
    assert len(missed) + len(unnamed) <= len(mutants) // 20


def test_at_least_half_of_the_bugs_are_explained(mutants):
    unexplained = [
        f"{m.name}: expected '{m.looks}' in\n{m.output[:600]}" for m in mutants if not m.explained and m.looks
    ]
    print("not explained:", *unexplained, sep="\n  ")
    assert sum(m.explained for m in mutants) * 2 >= len(mutants)
