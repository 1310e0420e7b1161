"""Memory: the least of what the machine, its control groups and the limit on addresses leave."""

import subprocess
import sys

import psutil
import pytest

from percolab.ground import memory

GB = 10**9


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 64 GB free, and files of control groups to be filled in."""
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Found", (), {"available": 64 * GB})())

    def group(path, version, limit, used, cached):
        names = {
            1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            2: ("memory.max", "memory.current", "inactive_file"),
        }
        folder = tmp_path / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names[version], (limit, used, None), strict=True):
            if value is not None:
                (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{names[version][2]} {cached}\n")

    return tmp_path, group


def test_without_groups(machine):
    assert memory.available() == 64 * GB
    (machine[0] / "own").write_text("0::/\n")
    assert memory.available() == 64 * GB


def test_version_2_counts_cached_files_as_free(machine):
    root, group = machine
    (root / "own").write_text("0::/job/step\n")
    group("job/step", 2, "max", 5 * GB, 0)
    assert memory.available() == 64 * GB
    group("job", 2, 10 * GB, 9 * GB, 6 * GB)  # the group above limits as well
    assert memory.available() == 7 * GB
    group("job/step", 2, 4 * GB, 3 * GB, 1 * GB)
    assert memory.available() == 2 * GB
    group("job/step", 2, 4 * GB, 5 * GB, 0)
    assert memory.available() == 0


def test_version_2_in_a_container_that_sees_its_own_group_as_the_root(machine):
    root, group = machine
    (root / "own").write_text("0::/of/the/host\n")
    group(".", 2, 10 * GB, 4 * GB, 1 * GB)
    assert memory.available() == 7 * GB


def test_version_1(machine):
    root, group = machine
    (root / "own").write_text("12:cpu,cpuacct:/job\n4:memory:/job\n0::/\n")
    group("memory/job", 1, 9 * GB, 8 * GB, 3 * GB)
    group("memory", 1, 2**63 - 4096, 20 * GB, 1 * GB)
    group("cpu,cpuacct/job", 1, 1 * GB, 1 * GB, 0)
    assert memory.available() == 4 * GB


def test_a_limit_on_addresses():
    code = """
import resource
from percolab.ground import memory
import psutil
limit = psutil.Process().memory_info().vms + 10**9
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(memory.available())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 10**9


def test_readable():
    assert [memory.readable(n) for n in (0, 999, 1000, 123456, 10**9, 4.4e18)] == [
        "0 bytes",
        "999 bytes",
        "1 kB",
        "123 kB",
        "1 GB",
        "4.4 EB",
    ]
    assert memory.peak() > 10**6
