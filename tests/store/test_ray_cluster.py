"""A Ray cluster of several nodes, each a raylet with workers of its own. Nodes die here, and addresses are wrong."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import percolab as pl
from percolab.engines.native import large_clusters
from percolab.store import runners, schema, shards

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

RECIPE = pl.Recipe(40_000, 5, "custom", create_prob=2e-3, seeds=9)
CELL = 2048


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    monkeypatch.setattr(schema, "CELL", CELL)
    monkeypatch.setattr(large_clusters, "MOST_ROWS", 4096)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")


@pytest.fixture
def cluster(monkeypatch):
    """Three nodes: a head that does no tasks, and two with a processor each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.workers = [made.add_node(num_cpus=1) for _ in range(2)]
    made.wait_for_nodes()
    yield made
    made.shutdown()


def files(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


def test_a_node_dies_in_the_middle_and_the_bytes_are_the_same(tmp_path, cluster):
    pl.generate(RECIPE).save(tmp_path / "whole.zarr")
    killed = []

    def kill_a_node(stage, done, total):
        if stage == "shards" and done > total // 4 and not killed:
            killed.append(done)
            cluster.remove_node(cluster.workers[0], allow_graceful=False)

    made = shards.generate_store(
        RECIPE, tmp_path / "a.zarr", shards=20, runner="ray", address=cluster.address, progress=kill_a_node
    )
    assert killed
    assert made.shards_made == 20
    assert files(tmp_path / "a.zarr") == files(tmp_path / "whole.zarr")


def test_nodes_that_always_die_end_the_run(cluster):
    """Retries are bounded: three deaths at the same task, here of whole nodes."""

    def die_with_the_node(_):
        os.kill(os.getppid(), 9)  # the raylet
        os.kill(os.getpid(), 9)

    die_with_the_node.__module__ = "__main__"  # so that it is sent whole
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    with (
        runners.connected(None, cluster.address),
        pytest.raises(runners.WorkerError, match="workers died 3 times at the same task: "),
    ):
        list(runners.run(die_with_the_node, [1], "ray", 1))


# ---------------------------------------------------------------------- wrong addresses


def address_of(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def deaf():
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield address_of(server)


@pytest.fixture
def talker():
    """The address of a server that is not Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as line:
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        yield address_of(server)


@pytest.fixture
def nobody():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return address_of(server)


@pytest.mark.parametrize("server", ["deaf", "talker", "nobody"])
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_wrong_address_is_refused_before_anything_is_written(server, scheme, tmp_path, request):
    address = scheme + request.getfixturevalue(server)
    with pytest.raises(ValueError, match=r"^address must be that of a Ray cluster that answers, got '.*': .+$"):
        shards.generate_store(RECIPE, tmp_path / "a.zarr", shards=2, runner="ray", address=address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["", "here", "here:", ":1", "host:0", "host:65536", "host:-1", "ray://host"])
def test_what_is_not_an_address_is_said(address, tmp_path):
    with pytest.raises(ValueError, match=r"address must be HOST:PORT, ray://HOST:PORT or 'auto', got '"):
        runners.check_address(address)


def test_a_wrong_address_on_the_command_line(nobody, tmp_path):
    words = ["generate", "--n-points", "300", "--dim", "3", "--shards", "2", "--runner", "ray", "--address", nobody]
    command = [sys.executable, "-m", "percolab", *words, "-o", str(tmp_path / "a.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: --address must be that of a Ray cluster that answers, got '{nobody}': ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_cluster_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="address must be that of a Ray cluster, got 'auto', and none runs on this"):
        shards.generate_store(RECIPE, tmp_path / "a.zarr", shards=2, runner="ray", address="auto")
    assert list(tmp_path.iterdir()) == []
