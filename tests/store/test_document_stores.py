"""Documents in stores, on the command line, in other formats, and streamed without a store."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from obvious import grow_forest

import percolab as pl
from percolab.checks import tokens
from percolab.cli import main
from percolab.corpora.collection import COLUMNS
from percolab.features import score
from percolab.store import schema, shards
from percolab.store.schema import StoreError
from percolab.streaming import DocumentStream, Share

LEXICONS = [pl.Recipe(300, 2, "one_cluster", seeds=s) for s in range(2)]
CORPUS = pl.Corpus(LEXICONS, length=16, min_size=16, shares=[1, 3], seed=7)
FIRST, COUNT = 2**40 + 5, 1000
RANGE = pl.DocumentRange(CORPUS, FIRST, FIRST + COUNT)


@pytest.fixture
def small_cells(monkeypatch):
    """Have cells of 128 documents."""
    monkeypatch.setattr(schema, "CELL_POSITIONS", 128 * CORPUS.length)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("documents") / "docs.zarr"
    assert pl.generate_store(RANGE, place).rows_made == COUNT
    return place


def bytes_of(store):
    """Return all files of a store but the one that tells when it was made."""
    files = sorted(file for file in Path(store).rglob("*") if file.is_file() and file.parent != Path(store))
    return {str(file.relative_to(store)): file.read_bytes() for file in files}


def test_what_is_stored_is_what_the_recipe_makes(path):
    stored = pl.load(path, verify=True)
    documents = CORPUS.documents(FIRST, FIRST + COUNT)
    beliefs = CORPUS.beliefs(documents.tokens)
    for name in ("tokens", "context", "lexicon", "renewed", "number"):
        assert np.array_equal(getattr(stored, name)[:], getattr(documents, name)), name
    for name in ("floor", "believed", "believed_lexicon"):
        assert np.array_equal(getattr(stored, name)[:], getattr(beliefs, name)), name
    assert stored.recipe == RANGE
    assert stored.corpus == CORPUS
    assert stored.tokens[3:5].dtype == np.int32
    assert isinstance(stored.tokens, pl.StoredArray)
    assert repr(stored) == "StoredDocuments(1,000 of 16 tokens out of 300)"
    assert len(stored) == COUNT


@pytest.mark.slow
def test_shards_in_processes_give_the_same_bytes(small_cells, tmp_path):
    whole = pl.generate_store(RANGE, tmp_path / "whole.zarr")
    assert (whole.shards, whole.shards_made) == (8, 8)
    # Workers are told where rows begin, so their cells may have the usual size.
    assert pl.generate_store(RANGE, tmp_path / "parts.zarr", shards=2, workers=1).shards_made == 2
    assert bytes_of(tmp_path / "whole.zarr") == bytes_of(tmp_path / "parts.zarr")


def test_an_interrupted_run_is_resumed(small_cells, tmp_path, monkeypatch):
    done = []

    def interrupt(stage, count, total):
        done.append(count)
        if stage == "shards" and count > 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pl.generate_store(RANGE, tmp_path / "docs.zarr", progress=interrupt)
    with pytest.raises(StoreError, match="unfinished write"):
        pl.load(tmp_path / "docs.zarr")
    with pytest.raises(FileExistsError, match=r"hi of the store at .* must be 1099511628784 to resume"):
        pl.generate_store(pl.DocumentRange(CORPUS, FIRST, FIRST + COUNT + 3), tmp_path / "docs.zarr")
    with pytest.raises(FileExistsError, match="shares of the store"):
        pl.generate_store(pl.DocumentRange(CORPUS.swapped(0), FIRST, FIRST + COUNT), tmp_path / "docs.zarr")
    made = pl.generate_store(RANGE, tmp_path / "docs.zarr")
    assert 0 < made.shards_made < 8
    pl.generate_store(RANGE, tmp_path / "again.zarr")
    assert bytes_of(tmp_path / "docs.zarr") == bytes_of(tmp_path / "again.zarr")
    assert pl.generate_store(RANGE, tmp_path / "docs.zarr").rows_made == 0


def test_a_damaged_block_is_found_and_made_again(small_cells, tmp_path):
    place = tmp_path / "docs.zarr"
    pl.generate_store(RANGE, place)
    before = bytes_of(place)
    chunk = place / "floor" / "c" / "0" / "0"
    chunk.write_bytes(bytes(chunk.stat().st_size))
    with pytest.raises(StoreError, match="floor"):
        pl.load(place, verify=True)
    assert pl.generate_store(RANGE, place).rows_made == 128
    assert bytes_of(place) == before


def test_the_field_that_differs_is_named(path):
    other_lexicon = CORPUS.replace(lexicons=[LEXICONS[0], pl.Recipe(300, 2, "one_cluster", seed=9)])
    with pytest.raises(FileExistsError, match=r"seeds of the store at .* must be Seeds\(graph=9, .*Seeds\(graph=1"):
        pl.generate_store(replace(RANGE, corpus=other_lexicon), path)
    with pytest.raises(FileExistsError, match=r"seed of the store at .* must be 77 to resume, got 7;"):
        pl.generate_store(replace(RANGE, corpus=CORPUS.replace(seed=77)), path)


def test_a_store_is_scored_as_its_documents_are(path):
    stored = pl.load(path)
    codes = np.random.default_rng(0).random((len(stored), stored.corpus.length, 3))
    made = score(stored.corpus, codes, documents=stored.corpus.documents(RANGE.lo, RANGE.hi), factor=0, min_size=2)
    assert score(stored, codes, factor=0, min_size=2).concepts.equals(made.concepts)
    assert score(CORPUS, codes, documents=stored, factor=0, min_size=2).concepts.equals(made.concepts)


def test_a_store_of_points_is_not_taken_for_documents(path, tmp_path):
    recipe = pl.Recipe(100, 2, "one_cluster", seeds=1)
    pl.generate(recipe).save(tmp_path / "points.zarr")
    with pytest.raises(FileExistsError, match=r"kind of the store at .* must be DocumentRange to resume, got 'Recipe'"):
        pl.generate_store(RANGE, tmp_path / "points.zarr")
    assert shards.recipe_to_resume(path, overwrite=False) is None
    pl.generate_store(RANGE, tmp_path / "points.zarr", overwrite=True)
    assert len(pl.load(tmp_path / "points.zarr")) == COUNT


def test_documents_of_a_bare_forest_are_resumed_or_named_if_they_are_others(tmp_path):
    corpus = pl.Corpus([grow_forest([40], 1), grow_forest([40], 2)], min_size=4, length=4)
    asked = pl.DocumentRange(corpus, 0, 10)
    pl.generate_store(asked, tmp_path / "d.zarr")
    pl.generate_store(asked, tmp_path / "d.zarr")
    with pytest.raises(FileExistsError, match=r"seed of the store at .* must be 5 to resume, got 0;"):
        pl.generate_store(pl.DocumentRange(replace(corpus, seed=5), 0, 10), tmp_path / "d.zarr")
    other = pl.Corpus([grow_forest([40], 1), grow_forest([40], 3)], min_size=4, length=4)
    with pytest.raises(FileExistsError, match=r"lexicons of the store at "):
        pl.generate_store(pl.DocumentRange(other, 0, 10), tmp_path / "d.zarr")


def test_bare_forests_are_stored_by_their_columns_unless_they_are_large(tmp_path):
    corpus = pl.Corpus(grow_forest([40], 1), min_size=4, length=4)
    pl.generate_store(pl.DocumentRange(corpus, 0, 9), tmp_path / "docs.zarr")
    assert pl.load(tmp_path / "docs.zarr").corpus == corpus
    large = pl.Corpus(pl.engines.split_forest(20_000, 1))
    with pytest.raises(ValueError, match="recipe must have at most 524,288 characters of JSON in a store, got"):
        pl.generate_store(pl.DocumentRange(large, 0, 9), tmp_path / "large.zarr")


def test_no_documents(tmp_path):
    pl.generate_store(pl.DocumentRange(CORPUS, 3, 3), tmp_path / "none.zarr")
    assert pl.load(tmp_path / "none.zarr", verify=True).tokens[:].shape == (0, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda recipe: recipe["corpus"]["lexicons"][0].update(n_points=2**40), "at most 16,777,216 tokens in all"),
        (lambda recipe: recipe["corpus"]["lexicons"][0].update(n_points="many"), "n_points must be an integer"),
        (lambda recipe: recipe.update(corpus=3), "corpus must be an object of JSON"),
        (lambda recipe: recipe.update(hi=0), "hi must be at least"),
        (lambda recipe: recipe.update(hi=RANGE.hi + 1), "must have shape"),
        (lambda recipe: recipe["corpus"].update(renewal=0), "renewal must be above 0"),
        (lambda recipe: recipe.pop("lo"), "must have kind, corpus, lo and hi"),
    ],
)
def test_a_recipe_of_a_stranger_is_checked(path, tmp_path, change, message):
    place = tmp_path / "docs.zarr"
    shutil.copytree(path, place)
    root = json.loads((place / "zarr.json").read_text())
    change(root["attributes"]["percolab"]["recipe"])
    (place / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(StoreError, match=message):
        pl.load(place)


# ---------------------------------------------------------------------- laws


def test_verify_takes_a_store(path):
    outcome = pl.verify(pl.load(path))
    assert outcome.passed
    assert [check.law for check in outcome][:2] == ["recipe", "documents"]
    assert "docs.zarr: 1,000 documents of 16 tokens" in outcome.subject


def test_a_store_that_differs_from_its_recipe_is_flagged(path):
    stored = pl.load(path)
    floor = stored.floor[:] + 1e-12
    vars(stored)["floor"] = floor
    check = tokens.remade(stored)
    assert check.failed
    assert check.measured == "floor differ"


# ---------------------------------------------------------------------- the command line


def run(*arguments):
    return main.run([str(argument) for argument in arguments])


def test_commands(tmp_path, capsys):
    place = tmp_path / "docs.zarr"
    options = ["--tokens", 256, "--length", 16, "--lexicons", 2, "--seed", 1, "--count", 1200]
    assert run("documents", *options, "-o", place) == 0
    assert "1,200 documents of 16 tokens out of 256" in capsys.readouterr().out
    stored = pl.load(place)
    assert [recipe.seeds.graph for recipe in stored.corpus.lexicons] == [1, 2]
    assert stored.corpus.seed == 1
    assert run("info", place, "--verify") == 0
    said = capsys.readouterr().out
    assert "every array matches its digest" in said
    assert "lexicon 1" in said
    assert run("info", place, "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_documents"] == 1200
    assert run("verify", place) == 0
    assert "unigram" in capsys.readouterr().out
    (tmp_path / "corpus.json").write_text(stored.corpus.to_json())
    recipe = ["--recipe", tmp_path / "corpus.json", "--count", 1200]
    assert run("documents", *recipe, "-o", tmp_path / "again.zarr", "-q") == 0
    assert bytes_of(tmp_path / "again.zarr") == bytes_of(place)
    assert run("documents", *recipe, "-o", place) == 0
    assert "nothing was missing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokens", 10], "of at least --min-size 32 tokens, got 10 of 10"),
        (["--tokens", 0], "--tokens must be at least 1, got 0"),
        (["--tokens", 99, "--lexicons", 0], "--lexicons must be at least 1, got 0"),
        (["--tokens", 99, "--length", 1], "--length must be at least 2, got 1"),
        (["--tokens", 99, "--renewal", 0], "--renewal must be above 0 and at most 1, got 0.0"),
        (["--tokens", 99, "--shares", "1,1"], "--shares must be 1 numbers"),
        (["--tokens", 99, "--shares", "a"], "--shares must be numbers with commas between them, got 'a'"),
        (["--tokens", 99, "--first", -1], "--first must be at least 0, got -1"),
        (["--tokens", 99, "--runner", "ray"], "--runner must be left out unless --shards is given, got ray"),
        ([], "--tokens must be given, or a recipe"),
    ],
)
def test_what_the_command_refuses(options, message, tmp_path, capsys):
    assert run("documents", *options, "--count", 5, "-o", tmp_path / "docs.zarr") == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "docs.zarr").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["export", "--format", "csv", "-o", "a"],
        ["info", "--html", "a"],
    ],
    ids=lambda command: command[0],
)
def test_commands_that_need_points_say_so(path, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(command[0], path, *command[1:]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "must be" in said


# ---------------------------------------------------------------------- other formats


def test_npz(path, tmp_path):
    pl.exports.to_npz(pl.load(path), tmp_path / "docs")
    with np.load(tmp_path / "docs.npz") as found:
        assert set(found) == {*COLUMNS, "number", "token_ids", "recipe"}
        assert np.array_equal(found["tokens"], pl.load(path).tokens[:])
        assert json.loads(str(found["recipe"]))["lo"] == FIRST
        assert np.array_equal(found["token_ids"][1], CORPUS.token_ids(1))


def test_parquet(path, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr("percolab.exports.columns.EXPORT_BYTES", 1 << 14)
    stored = pl.load(path)
    pl.exports.to_parquet(stored, tmp_path / "docs")
    documents = pandas.read_parquet(tmp_path / "docs/documents.parquet")
    for name in COLUMNS:
        told = documents["input_ids" if name == "tokens" else name]
        assert np.array_equal(np.stack(told), getattr(stored, name)[:]), name
    contexts = pandas.read_parquet(tmp_path / "docs/contexts.parquet")
    assert contexts["context"].tolist() == [*CORPUS.contexts(0), *CORPUS.contexts(1)]
    line = contexts[contexts["lexicon"] == 1].iloc[2]
    rows = CORPUS.forest(1).points_of(int(line["context"]))
    assert sorted(line["tokens"]) == sorted(CORPUS.token_ids(1)[rows])


def test_hugging_face(path, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pl.exports.to_parquet(pl.load(path), tmp_path / "hub")
    assert {file.name for file in (tmp_path / "hub").iterdir()} == {
        "README.md",
        "documents.parquet",
        "contexts.parquet",
    }
    table = parquet.read_table(tmp_path / "hub" / "documents.parquet")
    assert np.array_equal(np.stack(table["input_ids"].to_pylist()), pl.load(path).tokens[:])
    assert json.loads(table.schema.metadata[b"percolab.recipe"])["hi"] == FIRST + COUNT
    with pytest.raises(FileExistsError, match="output must not exist"):
        pl.exports.to_parquet(pl.load(path), tmp_path / "hub")


# ---------------------------------------------------------------------- streams


def test_streams_from_a_store(path):
    stream = pl.streaming.Stream(path, 64, columns=["tokens", "floor"])
    with closing(stream.batches()) as batches:
        rows = [tokens for tokens, _ in batches]
    assert sorted(map(tuple, np.concatenate(rows))) == sorted(map(tuple, pl.load(path).tokens[:]))


def test_a_stream_makes_documents_as_they_are_used():
    stream = DocumentStream(CORPUS, 8, columns=["tokens", "floor", "renewed"])
    with closing(stream.batches()) as batches:
        found = list(islice(batches, 5))
    whole = pl.DocumentRange(CORPUS, 0, 40).columns()
    assert np.array_equal(np.concatenate([batch[0] for batch in found]), whole["tokens"])
    assert np.array_equal(np.concatenate([batch[1] for batch in found]), whole["floor"].astype(np.float32))
    assert found[0][1].dtype == np.float32
    assert stream.n_batches() == 2**37


def test_ranks_and_workers_share_a_range():
    stream = DocumentStream(RANGE, 16)
    assert stream.n_batches(2) == 31
    seen = []
    for rank in range(2):
        parts = [list(stream.batches(share=Share(rank, 2, worker, 3))) for worker in range(3)]
        order = [parts[b % 3][b // 3][0] for b in range(31)]
        alone = [batch[0] for batch in stream.batches(share=Share(rank, 2))]
        assert np.array_equal(np.stack(order), np.stack(alone))
        seen += alone
    tokens = CORPUS.documents(FIRST, FIRST + 992).tokens
    assert sorted(map(tuple, np.concatenate(seen))) == sorted(map(tuple, tokens))


def test_what_streams_refuse():
    for call, message in (
        (lambda: DocumentStream(CORPUS, 0), "batch_size must be at least 1"),
        (lambda: DocumentStream(CORPUS, 3, columns=["X"]), "columns must be one of tokens"),
        (lambda: DocumentStream(CORPUS, 3, columns="tokens"), "columns must be a list"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_torch(path):
    torch = pytest.importorskip("torch")
    tokens = CORPUS.documents(FIRST, FIRST + COUNT).tokens
    for source in (RANGE, pl.load(path)):
        data = pl.exports.to_torch(source)
        assert len(data) == COUNT
        assert data[3].dtype == torch.int64
        assert np.array_equal(data[-1].numpy(), tokens[-1])
        batch = next(iter(torch.utils.data.DataLoader(data, batch_size=4)))
        assert np.array_equal(batch.numpy(), tokens[:4])
        with pytest.raises(IndexError):
            data[COUNT]
    endless = iter(torch.utils.data.DataLoader(pl.exports.to_torch(CORPUS), batch_size=4))
    assert np.array_equal(next(endless).numpy(), CORPUS.documents(0, 4).tokens)
    stream = pl.exports.to_torch_stream(RANGE, 32)
    assert len(stream) == 31
    assert np.array_equal(torch.cat([batch for (batch,) in stream]).numpy(), tokens[:992])


@pytest.mark.slow
def test_torch_workers():
    torch = pytest.importorskip("torch")
    stream = pl.exports.to_torch_stream(RANGE, 32)
    loader = torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)
    found = torch.cat([batch.clone() for (batch,) in loader]).numpy()
    assert np.array_equal(found, CORPUS.documents(FIRST, FIRST + 992).tokens)


@pytest.mark.slow
@pytest.mark.ray
def test_ray_makes_the_same_bytes(path, tmp_path, ray_cluster):
    pl.generate_store(RANGE, tmp_path / "docs.zarr", shards=2, runner="ray")
    assert bytes_of(tmp_path / "docs.zarr") == bytes_of(path)
