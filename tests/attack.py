"""An attack on all that reads and writes files, as a program. It prints what it did: 0 lost, 0 wrong, 0 crashes.

    python tests/attack.py                      # all of it, some hours
    python tests/attack.py all 1%               # all of it, with so few tries: some minutes
    python tests/attack.py forests 10000 1      # one part or several, as files,flips: how many tries, and a seed

forests      forests with wrong numbers, through all that reads a forest
files        crafted metadata and chunks, digests made to match
flips        bits flipped, files cut, lengthened, lost, exchanged
kills        writers killed at a random moment, then run again
steps        writers killed before each thing that they do to files, or as many of them as tries, then run again
runs         several writers, readers and strangers at once on one path
hidden       hidden files, links, pipes and devices of strangers beside what is read and written
unfinished   stores that were not finished, with changed descriptions, records, chunks and links, which are resumed
disks        writers whose disk is full at some point
interrupts   commands interrupted by Ctrl-C at a random moment
codes        files of codes and decoders, by the grammar of .npy and .npz
checkpoints  checkpoints of networks, by what they hold, and by bytes of their pickle
recipes      recipes of datasets, worlds and corpora
manifests    descriptions in stores, digests made to match
exports      HDF5, Parquet and .npz files with wrong columns
results      result files of the benchmark, by their schema, checksums made to match
cells        studies whose cells or claim are not as they should be
activations  folders of activations: manifests and arrays
dictionaries autoencoders of dictionary_learning and of SAELens: configurations and weights
studies      studies killed before each thing that they do to files; among links, pipes and devices; several at once

A fault that is not a refusal of one line is raised, and ends the program.
"""

import sys
import time
import warnings

import attack_files
import attack_forests
import attack_kills
import attack_places
import attack_readers
import attack_runs
import attack_studies

PARTS = {
    "forests": (attack_forests.attack, 10_000),
    "files": (attack_files.attack, 3000),
    "flips": (attack_files.attack_flips, 5000),
    "kills": (attack_kills.attack, 400),
    "steps": (attack_kills.attack_steps, 10_000),
    "runs": (attack_runs.attack, 200),
    "hidden": (attack_places.attack_hidden, 10_000),
    "unfinished": (attack_places.attack_unfinished, 10_000),
    "disks": (attack_places.attack_disks, 1000),
    "interrupts": (attack_places.attack_interrupts, 200),
    "codes": (attack_readers.attack_codes, 10_000),
    "checkpoints": (attack_readers.attack_checkpoints, 10_000),
    "recipes": (attack_readers.attack_recipes, 10_000),
    "manifests": (attack_readers.attack_manifests, 10_000),
    "exports": (attack_readers.attack_exports, 10_000),
    "results": (attack_studies.attack_results, 10_000),
    "cells": (attack_studies.attack_cells, 10_000),
    "activations": (attack_studies.attack_activations, 10_000),
    "dictionaries": (attack_studies.attack_dictionaries, 10_000),
    "studies": (attack_studies.attack_studies, 10_000),
}
MUST_BE_NONE = ("lost", "wrong", "crashes", "left over")


def main(words):
    warnings.simplefilter("ignore")
    chosen, tries, seed = (*words, *("all", "100%", "0")[len(words) :])
    bad = 0
    for name in PARTS if chosen == "all" else chosen.split(","):
        attack, count = PARTS[name]
        count = max(10, round(count * float(tries[:-1]) / 100)) if tries.endswith("%") else int(tries)
        began = time.monotonic()
        counts = attack(count, int(seed))
        said = ", ".join(f"{number} {what}" for what, number in counts.items())
        print(f"{name}: {said}; {time.monotonic() - began:.0f} s", flush=True)
        bad += sum(counts[key] for key in MUST_BE_NONE)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
