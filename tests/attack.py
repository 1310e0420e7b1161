"""An attack on stores, as a program. It prints what it did and what came of it: 0 lost, 0 wrong, 0 crashes.

    python tests/attack.py                      # all of it, some minutes
    python tests/attack.py forests 10000 1      # one part or several, as files,flips: how many tries, and a seed

forests     forests with wrong numbers, through all that reads a forest
files       crafted metadata and chunks, digests made to match
flips       bits flipped, files cut, lengthened, lost, exchanged
kills       writers killed at a random moment, then run again
steps       writers killed before each thing that they do to files, or as many of them as tries, then run again
runs        several writers, readers and strangers at once on one path

A fault that is not a refusal of one line is raised, and ends the program.
"""

import sys
import warnings

import attack_files
import attack_forests
import attack_kills
import attack_readers
import attack_runs

PARTS = {
    "forests": (attack_forests.attack, 10_000),
    "files": (attack_files.attack, 3000),
    "flips": (attack_files.attack_flips, 5000),
    "kills": (attack_kills.attack, 400),
    "steps": (attack_kills.attack_steps, 10_000),
    "runs": (attack_runs.attack, 200),
    "codes": (attack_readers.attack_codes, 10_000),
    "checkpoints": (attack_readers.attack_checkpoints, 10_000),
    "recipes": (attack_readers.attack_recipes, 10_000),
    "manifests": (attack_readers.attack_manifests, 10_000),
    "exports": (attack_readers.attack_exports, 10_000),
}
MUST_BE_NONE = ("lost", "wrong", "crashes", "left over")


def main(words):
    warnings.simplefilter("ignore")
    bad = 0
    for name in words[0].split(",") if words else PARTS:
        attack, count = PARTS[name]
        count, seed = (*map(int, words[1:]), *(count, 0)[len(words[1:]) :])
        counts = attack(count, seed)
        print(f"{name}: {', '.join(f'{number} {what}' for what, number in counts.items())}", flush=True)
        bad += sum(counts[key] for key in MUST_BE_NONE)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
