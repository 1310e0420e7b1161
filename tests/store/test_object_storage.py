"""Stores in object storage, over HTTP: an S3 server on this machine. Writers are killed, and meet at one URL."""

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import percolab as pl
from percolab import exports
from percolab.cli import errors, main
from percolab.store import exclusion, locations, objects, runners, schema

moto = pytest.importorskip("moto.server")
obstore = pytest.importorskip("obstore")

RECIPE = pl.Recipe(8_000, 5, "custom", create_prob=2e-3, seeds=9)
CELL = 1024

DRIVER = f"""
import sys
import percolab as pl
from percolab.store import runners, schema

schema.CELL = {CELL}
runners.run = lambda function, tasks, *_: map(function, tasks)
pl.generate_store(pl.Recipe.from_json(sys.argv[1]), sys.argv[2], shards=10)
"""


@pytest.fixture(scope="module")
def server():
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(autouse=True)
def credentials(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(schema, "CELL", CELL)
    monkeypatch.setattr(runners, "run", lambda function, tasks, *_: map(function, tasks))
    objects.opened.cache_clear()


@pytest.fixture
def url(server):
    import boto3

    bucket = f"percolab-{secrets.token_hex(4)}"
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/some/ds.zarr"


@pytest.fixture(scope="module")
def ds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        return pl.generate(RECIPE)


@pytest.fixture(scope="module")
def whole(ds, tmp_path_factory):
    """The files of the dataset on a disk."""
    path = tmp_path_factory.mktemp("whole") / "whole.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CELL", CELL)
        ds.save(path)
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def contents(url):
    return {key: bytes(objects.fetch(url, key, 1 << 30)) for key in dict(objects.sizes(url))}


@pytest.mark.slow
def test_save_load_verify_stream(url, ds, whole):
    assert objects.handles(url)
    ds.save(url)
    assert contents(url) == whole
    assert locations.n_bytes(url) == sum(map(len, whole.values()))
    loaded = pl.load(url, verify=True)
    np.testing.assert_array_equal(loaded.X[5:7000:7], ds.X[5:7000:7])
    assert loaded.forest.equals(ds.forest)
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="output must not exist, since URLs are not overwritten"):
            ds.save(url, overwrite=overwrite)
    rows = np.concatenate([y for _, y in exports.to_torch_stream(url, 512, seed=1)])
    np.testing.assert_array_equal(np.sort(rows), np.sort(ds.y.astype(np.float32)))


@pytest.mark.slow
def test_the_command_line(url, capfd):
    words = ["--n-points", "3000", "--dim", "3", "--seed", "1", "-o", url]
    assert main.run(["generate", *words, "--shards", "2"]) == 0
    assert main.run(["info", url, "--verify"]) == 0
    assert capfd.readouterr().err == ""
    assert main.run(["generate", *words]) == errors.BAD_INPUT
    assert capfd.readouterr().err == f"error: --output must not exist, since URLs are not overwritten, got '{url}'\n"


@pytest.mark.slow
def test_damage_is_noticed_and_repaired(url, ds, whole):
    pl.generate_store(RECIPE, url, shards=3)
    assert contents(url) == whole
    store = objects.opened(url)
    broken = bytearray(whole["X/c/3/0"])
    broken[1000] ^= 1
    obstore.put(store, "X/c/3/0", bytes(broken))
    obstore.delete(store, "y/c/1")
    with pytest.raises(pl.StoreError, match="X/c/3/0 does not match its checksum"):
        np.asarray(pl.load(url).X)
    with pytest.raises(pl.StoreError, match="y cannot be read: a chunk is missing"):
        pl.load(url, verify=True)
    obstore.put(store, "point_id/c/0", bytes(10**6))
    with pytest.raises(pl.StoreError, match="point_id/c/0 must have at most 8212 bytes, got 1000000"):
        _ = pl.load(url).forest
    made = pl.generate_store(RECIPE, url, shards=3)
    assert made.shards_made == 2
    assert contents(url) == whole


def start(url):
    command = [sys.executable, "-c", DRIVER, RECIPE.to_json(), url]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_resumed_after_a_kill(url, whole):
    process = start(url)
    wait_for(lambda: sum(key.startswith("unfinished/point/c") for key in dict(objects.sizes(url))) >= 3, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert exclusion.LOCK in set(dict(objects.sizes(url)))  # it could not give it back
    with pytest.raises(pl.StoreError, match="unfinished write"):
        pl.load(url)
    made = pl.generate_store(RECIPE, url, shards=10)
    assert 0 < made.shards_made < 10
    assert contents(url) == whole


@pytest.mark.slow
def test_a_second_run_is_refused(url, whole):
    process = start(url)
    wait_for(lambda: any(key.startswith("unfinished/point/c") for key in dict(objects.sizes(url))), process)
    with pytest.raises(pl.StoreError, match=rf"is being written by another process \(process {process.pid} on '"):
        pl.generate_store(RECIPE, url, shards=10)
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert contents(url) == whole


# ---------------------------------------------------------------------- the lock


def test_of_many_that_begin_at_once_one_gets_the_lock(url):
    outcomes, held = [], []

    def run():
        try:
            held.append(exclusion.Lease(url))
            outcomes.append("got it")
        except pl.StoreError as fault:
            outcomes.append(str(fault))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("got it") == 1
    assert all("is being written by another process" in said for said in outcomes if said != "got it")
    held[0].release()
    assert list(dict(objects.sizes(url))) == []


def stale(url, **changes):
    """Leave the lock of another machine."""
    text = json.dumps({**exclusion._here(), "owner": "other", "host": "other", "place": "other", **changes})
    obstore.put(objects.opened(url), exclusion.LOCK, text.encode())


@pytest.mark.slow
def test_a_lock_is_believed_for_a_while(url, ds, monkeypatch):
    stale(url)
    with pytest.raises(pl.StoreError, match=r"\(process \d+ on 'other'\); if that is dead, try again in (60|59) s$"):
        ds.save(url)
    monkeypatch.setattr(exclusion, "LEASE_S", 0.0)
    ds.save(url)
    assert exclusion.LOCK not in set(dict(objects.sizes(url)))


@pytest.mark.slow
def test_a_dead_process_of_this_machine_is_not_waited_for(url, ds):
    stale(url, **(exclusion._here() | {"started": 1.0}))
    ds.save(url)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"x" * 5000])
def test_a_lock_that_nobody_wrote(text, url, ds, monkeypatch):
    obstore.put(objects.opened(url), exclusion.LOCK, text)
    with pytest.raises(pl.StoreError, match="is being written by another process; if that is dead, try again in"):
        ds.save(url)
    monkeypatch.setattr(exclusion, "LEASE_S", 0.0)
    exclusion.Lease(url).release()
    assert list(dict(objects.sizes(url))) == []


def test_a_lock_is_renewed_and_its_loss_is_noticed(url, monkeypatch):
    monkeypatch.setattr(exclusion, "RENEW_S", 0.01)
    lease = exclusion.Lease(url)
    first = lease._tag
    deadline = time.monotonic() + 30
    while lease._tag == first:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lease.check()
    stale(url)
    lease._thread.join(30)
    with pytest.raises(pl.StoreError, match="was taken over by another run, since this one could not renew its lock"):
        lease.check()
    lease.release()
    assert exclusion.LOCK in set(dict(objects.sizes(url)))  # it is another's now


def test_a_lock_that_cannot_be_renewed_for_too_long_is_not_trusted(url):
    lease = exclusion.Lease(url)
    lease.check()
    lease._renewed -= exclusion.LEASE_S + 1  # as if the thread that renews it hung all the while
    with pytest.raises(pl.StoreError, match="may be taken over by another run, since this one could not renew"):
        lease.check()
    lease.release()


@pytest.mark.slow
def test_a_run_that_lost_its_lock_does_not_say_that_it_is_complete(url, monkeypatch):
    monkeypatch.setattr(exclusion, "RENEW_S", 0.01)

    def rob(stage, done, total):
        if stage == "shards" and done == total:
            stale(url)
            time.sleep(0.5)

    with pytest.raises(pl.StoreError, match="was taken over by another run"):
        pl.generate_store(RECIPE, url, shards=2, progress=rob)
    with pytest.raises(pl.StoreError, match="unfinished write"):
        pl.load(url)


# ---------------------------------------------------------------------- what can be wrong


def test_a_bucket_that_does_not_exist(server, ds):
    with pytest.raises(FileNotFoundError, match="dataset must exist, got 's3://nowhere-at-all/a'"):
        pl.load("s3://nowhere-at-all/a")
    with pytest.raises(OSError, match=r"output must be at a writable URL, got 's3://nowhere-at-all/a': .*404"):
        ds.save("s3://nowhere-at-all/a")


def test_a_server_that_does_not_answer(monkeypatch, ds):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(objects, "PATIENCE", objects.CONNECT / 100)
    objects.opened.cache_clear()
    with pytest.raises(pl.StoreError, match=r"s3://bucket/a is not a percolab dataset: zarr.json cannot be fetched: "):
        pl.load("s3://bucket/a")
    objects.opened.cache_clear()


@pytest.mark.slow
def test_a_forked_process_says_what_to_do_or_reads_through_fsspec(url, ds):
    ds.save(url)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            said = f"{objects.handles(url)} {pl.load(url).y.tobytes() == ds.y.tobytes()}"
        except BaseException as fault:
            said = repr(fault)
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1000).decode() == "False True"
