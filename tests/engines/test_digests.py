"""What engines and corpora make, to the bit: stored digests, here and on processors that this one can stand for."""

import json
import os
import subprocess
import sys

import digests
import pytest

GOLDEN = json.loads(digests.GOLDEN.read_text())


@pytest.mark.parametrize("case", digests.CASES, ids=lambda case: " ".join(map(str, case)))
def test_golden_bytes(case):
    """These bytes are the definition of the data: if they change, the engine's version must."""
    assert digests.digest(*case) == GOLDEN[" ".join(map(str, case))]


@pytest.mark.parametrize("count", digests.CORPORA)
def test_golden_documents_and_beliefs(count):
    assert digests.corpus_digest(count) == GOLDEN[f"corpus {count}"]


def test_precision_and_dimension_leave_the_trees_alone():
    made = {case: columns for case, columns in GOLDEN.items() if "X" in columns}
    assert len(made) == len(digests.CASES)
    trees = {(case.split()[0], case.split()[1], columns["forest and y"]) for case, columns in made.items()}
    assert len(trees) == 4
    assert len({columns["X"] for columns in made.values()}) == len(made)


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["generic", "haswell"])
def test_every_processor_makes_the_same_bytes(cpu, tmp_path):
    """Compile for a processor with narrower registers and fewer instructions, and run that here."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}  # else the host's features are kept
    run = subprocess.run([sys.executable, digests.__file__], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("equal") == 2 * len(GOLDEN)
