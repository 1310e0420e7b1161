"""Files, locks and renames: complete or not there, and nothing that was there is lost."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from percolab.ground import files, locks


def names(folder):
    return sorted(file.name for file in folder.iterdir())


# ---------------------------------------------------------------------- renames


def test_rename_new_never_replaces(tmp_path, system):
    def folder(name, *inside):
        (tmp_path / name).mkdir()
        for file in inside:
            (tmp_path / name / file).write_text(name)
        return tmp_path / name

    def file(name):
        (tmp_path / name).write_text(name)
        return tmp_path / name

    taken = [folder("full", "a"), file("file")]
    os.symlink("nowhere", tmp_path / "link")
    for source in (folder("from", "b"), file("from.txt")):
        for target in (*taken, tmp_path / "link"):
            with pytest.raises(FileExistsError):
                files.rename_new(source, target)
        assert source.exists()
        files.rename_new(source, tmp_path / "free")
        assert (tmp_path / "free").exists()
        assert not source.exists()
        (tmp_path / "free").rename(tmp_path / f"{source.name} moved")
    assert (tmp_path / "full" / "a").read_text() == "full"
    assert (tmp_path / "file").read_text() == "file"
    assert os.readlink(tmp_path / "link") == "nowhere"
    files.rename_new(folder("again", "c"), folder("empty"))
    assert names(tmp_path / "empty") == ["c"]
    with pytest.raises(FileExistsError):
        files.rename_new(file("one"), folder("empty too"))  # not even that, for a file
    with pytest.raises(FileNotFoundError):
        files.rename_new(tmp_path / "nothing", tmp_path / "free")


def test_rename_new_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files, "_system_call", lambda: None)
    monkeypatch.setattr(os, "link", refused)
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FileExistsError):
        files.rename_new(tmp_path / "a", tmp_path / "b")
    files.rename_new(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "b").read_text() == "b"
    assert (tmp_path / "c").read_text() == "a"


def test_exchange(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "other").write_text("other")
    try:
        files.exchange(tmp_path / "one", tmp_path / "other")
    except files.UnsupportedError:
        pytest.skip("this system cannot exchange")
    assert (tmp_path / "one").read_text() == "other"
    assert (tmp_path / "other").is_dir()
    with pytest.raises(FileNotFoundError):
        files.exchange(tmp_path / "one", tmp_path / "nothing")


# ---------------------------------------------------------------------- locks


def test_locks(tmp_path):
    with locks.alone(tmp_path):
        with pytest.raises(locks.HeldError), locks.alone(tmp_path):
            pass
        moved = tmp_path.with_name(tmp_path.name + " moved")
        tmp_path.rename(moved)
        with pytest.raises(locks.HeldError), locks.alone(moved):
            pass
        moved.rename(tmp_path)
    with locks.alone(tmp_path, certain=True):
        pass
    with pytest.raises(FileNotFoundError), locks.alone(tmp_path / "nothing"):
        pass


def test_file_systems_without_locks(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    with locks.alone(tmp_path):
        pass
    with pytest.raises(OSError, match="not supported"), locks.alone(tmp_path, certain=True):
        pass
    (tmp_path / ".a.partial-00000000").write_text("of a writer that may be running")
    files.sweep(tmp_path / "a")
    assert names(tmp_path) == [".a.partial-00000000"]
    with files.new_files(tmp_path / "a", overwrite=False) as (file,):
        file.write(b"a")


# ---------------------------------------------------------------------- new files


def write(*paths, overwrite=False, say=b"new"):
    with files.new_files(*paths, overwrite=overwrite) as opened:
        for file in opened:
            file.write(say)


def test_all_or_nothing(tmp_path, system):
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, two)
    assert names(tmp_path) == ["one", "two"]
    with pytest.raises(FileExistsError, match="output must not exist unless overwrite is given"):
        write(one, tmp_path / "three")
    with pytest.raises(TypeError), files.new_files(one, two, overwrite=True) as (file, _):
        file.write("text, which a file of bytes does not take")
    assert one.read_bytes() == b"new"
    write(one, two, overwrite=True, say=b"newer")
    assert two.read_bytes() == b"newer"
    assert names(tmp_path) == ["one", "two"]


def test_what_appears_meanwhile_stays(tmp_path, system):
    one, two = tmp_path / "one", tmp_path / "two"
    with pytest.raises(FileExistsError), files.new_files(one, two, overwrite=False):
        two.write_text("years of work")
    assert names(tmp_path) == ["two"]
    assert two.read_text() == "years of work"


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    target, link = tmp_path / "elsewhere" / "target.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(FileExistsError):
        write(link)
    write(link, overwrite=True)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path) == ["elsewhere", "link.csv"]
    assert names(target.parent) == ["target.csv"]


def test_a_link_in_a_directory_that_we_keep_is_replaced(tmp_path):
    """It may be a stranger's directory, and the user has not named the link."""
    target, link = tmp_path / "elsewhere" / "target.csv", tmp_path / "link.csv"
    target.parent.mkdir()
    target.write_text("years of work")
    link.symlink_to(target)
    with files.replacing(link) as name:
        assert name.parent == tmp_path
        assert name.suffix == ".csv"
        name.write_text("new")
    assert target.read_text() == "years of work"
    assert (link.is_symlink(), link.read_text()) == (False, "new")
    assert names(tmp_path) == ["elsewhere", "link.csv"]


KILLED = """
import sys, time
from pathlib import Path
from percolab.ground import files
with files.new_files(Path(sys.argv[1]), overwrite=True) as (file,), files.replacing(Path(sys.argv[2])) as name:
    file.write(b"half")
    file.flush()
    name.write_text("half")
    print("half", flush=True)
    time.sleep(60)
"""


def test_what_killed_writers_left_is_swept_at_the_next(tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.csv"
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(one), str(two)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "half\n"
        write(one)  # it still runs, and is left alone
        two.write_text("old")
        assert len(names(tmp_path)) == 4
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    write(one, overwrite=True)
    files.write_json(two, {})
    assert names(tmp_path) == ["one.npz", "two.csv"]


def test_a_sweep_between_opening_and_locking(tmp_path, monkeypatch):
    hold, swept = locks.hold, []

    def late(opened):
        if not swept:
            swept.append(opened)
            files.sweep(tmp_path / "a")
        hold(opened)

    monkeypatch.setattr(locks, "hold", late)
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("length", [200, 240, 255])
def test_long_names(tmp_path, length):
    path = tmp_path / ("x" * (length - 4) + ".csv")
    write(path)
    with files.replacing(path) as name:
        name.write_text("again")
    assert names(tmp_path) == [path.name]
    other = path.with_name("y" + path.name[1:])
    assert files.beside(path, "next") != files.beside(other, "next")


def test_names_that_are_too_long_are_refused_before_the_work(tmp_path):
    with pytest.raises(OSError, match="output must have a name of at most 255 bytes, got one of 256"):
        files.check_output(tmp_path / ("x" * 256), overwrite=True)


def test_files_are_on_the_disk_before_they_have_their_names(tmp_path, monkeypatch):
    events = []
    fsync, replaced, moved = os.fsync, os.replace, files.rename_new

    def name_of(opened):
        return Path(os.readlink(f"/proc/self/fd/{opened}"))

    monkeypatch.setattr(os, "fsync", lambda opened: (events.append(("sync", name_of(opened))), fsync(opened)))
    monkeypatch.setattr(os, "replace", lambda *names: (events.append(("name", Path(names[1]))), replaced(*names)))
    monkeypatch.setattr(files, "rename_new", lambda *names: (events.append(("name", Path(names[1]))), moved(*names)))
    for overwrite in (False, True):
        events.clear()
        write(tmp_path / "a", tmp_path / "b", overwrite=overwrite)
        kinds = [kind for kind, _ in events]
        # Both files; where they replace others, that these have no names; their names, and that these are there.
        assert kinds == ["sync", "sync", *(["sync"] if overwrite else []), "name", "name", "sync"]
        assert events[-1] == ("sync", tmp_path)


# ---------------------------------------------------------------------- several files at once


class Killed(BaseException):
    pass


def killed_before(step, monkeypatch, function):
    """Call a function that ends before a change of names; return whether it did, and whether it came to its end."""
    left = step

    def counted(change):
        def changed(*args, **options):
            nonlocal left
            left -= 1
            if left < 0:  # and so do the changes that clear up
                raise Killed
            return change(*args, **options)

        return changed

    with monkeypatch.context() as patch:
        for module, name in ((os, "rename"), (os, "replace"), (os, "link"), (Path, "unlink"), (files, "_renameat2")):
            patch.setattr(module, name, counted(getattr(module, name)))
        with suppress(Killed):
            function()
    return left < 0


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_killed_as_they_get_their_names_are_never_old_and_new(tmp_path, system, overwrite, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which takes most of the time here
    paths = [tmp_path / name for name in ("a", "b", "c")]
    seen = set()
    for step in range(100):
        for path in paths if overwrite else []:
            path.write_bytes(b"old")
        died = killed_before(step, monkeypatch, lambda: write(*paths, overwrite=overwrite))
        there = [path.read_bytes() for path in paths if path.exists()]
        assert len(set(there)) < 2
        seen |= {(*set(there), len(there))}
        write(*paths, overwrite=True)
        assert names(tmp_path) == ["a", "b", "c"]
        assert {path.read_bytes() for path in paths} == {b"new"}
        for path in [] if overwrite else paths:
            path.unlink()
        if not died:
            break
    assert {(0,), (b"new", 3)} < seen
    assert step >= 3


def test_files_that_cannot_get_their_names_leave_those_that_were_there(tmp_path, system, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    replaced = os.replace

    def refused(source, target):
        if target == tmp_path / "c":
            raise PermissionError(13, "Permission denied")
        replaced(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refused)
        with pytest.raises(PermissionError):
            write(*(tmp_path / name for name in "abc"), overwrite=True)
    assert names(tmp_path) == ["a", "b"]
    assert [(tmp_path / name).read_text() for name in "ab"] == ["a", "b"]


TWO = """
import sys
from pathlib import Path
from percolab.ground import files
paths = [Path(sys.argv[1]) / name for name in ("a", "b", "c")]
for k in range(60):
    with files.new_files(*paths, overwrite=True) as opened:
        for file in opened:
            file.write(f"{sys.argv[2]} {k}".encode())
"""


@pytest.mark.slow
def test_two_writers_that_name_their_files_at_once_do_not_mix_them(tmp_path):
    writers = [subprocess.Popen([sys.executable, "-c", TWO, str(tmp_path), word]) for word in ("one", "other")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert names(tmp_path) == ["a", "b", "c"]
    assert {(tmp_path / name).read_text() for name in "abc"} in ({"one 59"}, {"other 59"})


def test_a_directory_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    target, alone, swept = tmp_path / "ds.zarr", locks.alone, []

    def swept_first(path, **options):
        if not swept:
            swept.append(path)
            os.rmdir(path)
        return alone(path, **options)

    monkeypatch.setattr(locks, "alone", swept_first)
    with files.partial_directory(target) as folder:
        assert folder.is_dir()
        assert folder != swept[0]
        files.sweep(target)
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []
