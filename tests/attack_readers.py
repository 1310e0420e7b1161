"""Files as strangers might write them, by a grammar of each format: read right, or refused in one line.

Each part makes files that are right but for some places, and some that are right nowhere. A crash ends the program, and
so does any other fault than a refusal.
"""

import copy
import io
import json
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import attack_files
import numpy as np
import scipy.sparse
from attack_forests import exercise, in_one_line

import percolab as pl
from percolab import exports
from percolab.corpora.corpus import Corpus
from percolab.features import score
from percolab.features.inputs import read_codes
from percolab.ground.foreign_files import parse_json
from percolab.worlds.superposition import recipe_from_dict

REFUSALS = (FileNotFoundError, MemoryError, ValueError)
RECIPE = pl.Recipe(60, 3, "one_cluster", seeds=1)


def tried(count, seed, make_try):
    """Call a function so many times with a generator; count what was read and what was refused."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, read=0, refused=0, crashes=0)
    for _ in range(count):
        try:
            make_try(random)
            counts["read"] += 1
        except REFUSALS as fault:
            counts["refused"] += in_one_line(fault)
    return counts


def flipped(content, random, most=3):
    """Return bytes with some of them changed, or cut, or lengthened."""
    content = bytearray(content)
    for _ in range(random.integers(1, most + 1)):
        if content:
            content[random.integers(len(content))] = random.integers(256)
    if random.random() < 0.1:
        content = content[: random.integers(len(content) + 1)]
    return bytes(content + b"\x00" * int(random.random() < 0.05))


def pick(random, choices):
    return choices[random.integers(len(choices))]


# ---------------------------------------------------------------------- codes


NUMBERS = (-(2**63), -(10**9), -1, 0, 1, 2, 7, 59, 60, 10**9, 2**31, 2**62, 2**63 - 1)
TYPES = ("<f8", "<f4", "<f2", ">f8", "<i8", "<i4", "<u8", "|u1", "|b1", "<c16", "<U3", "|S2", "<M8[s]", "<m8[s]", "|V4")


def spoilt_array(values, random):
    """Return an array with another type, other numbers or another shape."""
    values = np.array(values)
    how = random.integers(6)
    if how == 0:
        with np.errstate(all="ignore"):
            try:
                return values.astype(pick(random, TYPES))
            except (RuntimeError, TypeError, ValueError):
                return np.zeros(values.shape, pick(random, TYPES))
    if how == 1 and values.size and values.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            flat = values.reshape(-1)
            flat[random.integers(flat.size, size=random.integers(1, 4))] = np.array(
                pick(random, NUMBERS), object
            ).astype(np.float64 if values.dtype.kind == "f" else np.int64)
        return values
    if how == 2 and values.dtype.kind == "f" and values.size:
        values.reshape(-1)[random.integers(values.size)] = pick(random, (np.nan, np.inf, -np.inf, -1.0, 1e308, 5e-324))
        return values
    if how == 3:
        return values[: random.integers(len(values) + 1)] if values.ndim else values[None]
    if how == 4:
        return pick(random, (values[None], values.reshape(-1), values[..., None], values.T, values[None][..., :0]))
    return values.reshape(-1)[random.permutation(values.size)].reshape(values.shape)


def npy(values, random):
    """Return an .npy file, its header spoilt now and then."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    content = file.getvalue()
    if random.random() < 0.3:
        words = {
            "descr": pick(random, (*TYPES, "|O", "x", 3, [("a", "<f8")], "<f8999999999999")),
            "fortran_order": pick(random, (True, False, 1, "no")),
        }
        sizes = [pick(random, NUMBERS) if random.random() < 0.5 else int(size) for size in values.shape]
        words["shape"] = pick(random, (tuple(sizes), list(sizes), 3, (True, 2), (2**40, 2**40), "((((", None))
        text = pick(random, (repr(words), repr(words)[:-3], "(" * 500, "{'descr': __import__('os')}")).encode()
        version = pick(random, (b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
        length = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
        content = b"\x93NUMPY" + version + length + text + values.tobytes()
    return flipped(content, random) if random.random() < 0.1 else content


def npz(parts, random):
    """Return an .npz file, its archive spoilt now and then."""
    file = io.BytesIO()
    packing = pick(random, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, values in parts.items():
            archive.writestr(f"{name}.npy", npy(values, random))
    content = bytearray(file.getvalue())
    if parts and random.random() < 0.2:  # sizes, flags (such as encryption) and ways of packing in the list at the end
        at = content.rfind(b"PK\x01\x02")
        content[at + random.integers(6, 46)] = random.integers(256)
    return flipped(content, random) if random.random() < 0.1 else bytes(content)


def attack_codes(count, seed):
    """Score so many files of codes."""
    dataset = pl.generate(RECIPE)
    dense = np.maximum(dataset.X @ np.random.default_rng(1).normal(size=(3, 7)), 0)
    decoder = {"directions": np.ones((7, 3)), "bias": np.ones(3), "activations": np.asarray(dataset.X)}

    def parts(random):
        if random.random() < 0.4:
            return {"codes": dense, **{name: values for name, values in decoder.items() if random.random() < 0.9}}
        form = pick(random, ("csr", "csr", "csc", "coo", "bsr", "dia"))
        file = io.BytesIO()
        scipy.sparse.save_npz(file, scipy.sparse.csr_array(dense).asformat(form))
        file.seek(0)
        found = dict(np.load(file))
        if random.random() < 0.1:
            found["format"] = np.array(
                pick(random, (b"csr", b"csc", b"coo", b"lil", "csr", 3, [b"csr"], b"\x1b[2J", 1j))
            )
        return found

    def make_try(random):
        found = {name: values for name, values in parts(random).items() if random.random() < 0.98}
        for _ in range(random.integers(0, 3)):
            name = pick(random, list(found))
            found[name] = spoilt_array(found[name], random)
        content = npy(np.asarray(found.get("codes", dense)), random) if random.random() < 0.2 else npz(found, random)
        path.write_bytes(content)
        with np.errstate(all="ignore"):
            score(dataset, min_size=5, draws=1, threads=1, **read_codes("codes", path))

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "codes.npz"
        return tried(count, seed, make_try)


# ---------------------------------------------------------------------- checkpoints


PLAIN_WORDS = (
    None, True, False, -1, 0, 1, 3, 10**6, 10**30, 1.5, float("nan"), float("inf"), "", "text", "\x1b[2J", [], [1], {},
    {"a": 1}, (1, 2), {1, 2}, b"bytes", 1j,
)  # fmt: skip
"""What a pickle of plain values can hold."""


def tensor(random, like=None):
    """Return a tensor of any kind, often of the shape of another."""
    import torch

    types = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
    if like is not None and like.numel() < 10**6 and random.random() < 0.5:
        shape = tuple(like.shape)
    else:
        shape = tuple(random.integers(0, 9, random.integers(0, 4)).tolist())
    made = torch.zeros(shape, dtype=pick(random, (*types, torch.complex64)))
    how = random.integers(8)
    if how == 0:
        return made.to_sparse()
    if how == 1:
        return made.to("meta")
    if how == 2:
        return torch.zeros(1).expand(pick(random, ((10**9, 10**9), (10**5, 10**6), (8, 3), (4, 3), (2**40,), (10, 6))))
    if how == 3 and like is not None and like.is_floating_point() and like.numel() < 10**6:
        return torch.full(tuple(like.shape), pick(random, (float("nan"), float("inf"), -1.0, 1e4)), dtype=like.dtype)
    if how == 4:
        return torch.nn.Parameter(torch.zeros(shape))
    if how == 5 and like is not None and like.ndim > 1:
        return like.T
    return made


def spoilt_tensors(value, random):
    """Return what torch saves with one thing in it changed, lost or added."""
    if isinstance(value, dict) and value and random.random() < 0.95:
        key = pick(random, list(value))
        if random.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if random.random() < 0.05:
            return {**value, pick(random, ("more", 3, None)): pick(random, PLAIN_WORDS)}
        return {**value, key: spoilt_tensors(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.integers(len(value))
        changed = [*value[:at], spoilt_tensors(value[at], random), *value[at + 1 :]]
        return changed if random.random() < 0.9 else value[:at]
    if hasattr(value, "detach"):
        return tensor(random, value) if random.random() < 0.9 else pick(random, PLAIN_WORDS)
    return pick(random, PLAIN_WORDS) if random.random() < 0.9 else tensor(random)


def with_other_pickle(content, random):
    """Return an archive of torch with bytes of its pickle changed, and the checksums that match."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        for part in old.infolist():
            inside = old.read(part)
            new.writestr(part.filename, flipped(inside, random, 4) if part.filename.endswith("data.pkl") else inside)
    return file.getvalue()


def attack_checkpoints(count, seed):
    """Resume and load so many checkpoints."""
    import torch

    from percolab import nn

    dataset = pl.generate(RECIPE)
    config = nn.TrainConfig(d_model=4, n_blocks=1, expansion=2, epochs=3, batch_size=64)

    def make_try(random):
        values = copy.copy(whole)
        for _ in range(random.integers(1, 3)):
            values = spoilt_tensors(values, random)
        file = io.BytesIO()
        torch.save(values, file, _use_new_zipfile_serialization=random.random() > 0.02)
        content = file.getvalue()
        if content[:2] == b"PK" and random.random() < 0.2:
            content = with_other_pickle(content, random)
        elif random.random() < 0.1:
            content = flipped(content, random)
        path.write_bytes(content)
        if random.random() < 0.5:
            nn.load_model(path.parent, dataset, device="cpu")
        else:
            nn.train(dataset, config, run_dir=path.parent, resume=True, device="cpu")

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "checkpoint.pt"
        nn.train(dataset, config, run_dir=name, device="cpu")
        whole = torch.load(path, weights_only=True)
        whole["epoch"] = 2
        return tried(count, seed, make_try)


# ---------------------------------------------------------------------- recipes


WORDS = (
    None, True, False, -1, 0, 1, 2, 3, 60, 10**5, 2**31, 2**64, 10**30, 10**400, -0.5, -0.0, 0.3, 1.5, 1e308, "", "sum",
    "native", "paper", "float64", "f8", "\x1b[2J", "\ud800", "<script>alert(1)</script>", "../x", "a\x00b", "x" * 1500,
    [], [[]], [0], [1, 2], {}, {"a": 1}, {"graph": 1}, {"kind": "do"},
)  # fmt: skip


def spoilt_words(value, random):
    """Return JSON with one thing in it changed, lost or added."""
    if isinstance(value, dict) and value and random.random() < 0.95:
        key = pick(random, list(value))
        how = random.random()
        if how < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if how < 0.15:
            return {**value, pick(random, ("more", "", "kind")): pick(random, WORDS)}
        return {**value, key: spoilt_words(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.integers(len(value))
        return [*value[:at], *([spoilt_words(value[at], random)] if random.random() < 0.9 else []), *value[at + 1 :]]
    alike = [word for word in WORDS if type(word) is type(value)]
    return pick(random, alike if alike and random.random() < 0.5 else WORDS)


def spoilt_text(text, random):
    how = random.random()
    if how < 0.85:
        return text.encode("utf-8", "surrogatepass")
    if how < 0.95:
        return flipped(text.encode("utf-8", "surrogatepass"), random)
    return pick(
        random,
        (
            "[" * 10**5, '{"a":' * 10**5, "1" * 5000, '{"n_points": ' + "1" * 5000 + "}", "\x00", "",
            text.replace("0", "1e999", 1), text.replace("1", "NaN", 1), '{"a": 1, ' + text[1:],
            '{"a":' * 900 + "1" + "}" * 900, text[:-1] + ', "more": ' + "[" * 900 + "]" * 900 + "}", text + text[:1],
        ),
    ).encode("utf-8", "surrogatepass")  # fmt: skip


def recipes():
    """Return recipes with every kind of field."""
    edited = pl.generate(RECIPE).do(z={3: 1.0}, point_z={2: 0.5}).move(2, 0.5).turn(1, seed=3).recipe
    grouped = pl.Recipe(60, 3, seeds=2, target={"kind": "classes", "n_groups": 3}, min_cluster_size=2)
    silent = pl.Recipe(60, 3, "custom", 0.4, seeds=4, target="silent", engine="paper")
    graph = pl.Recipe(60, 3, "random_graph", mean_degree=1.5, seeds=4, dtype="float64")
    world = pl.Superposition([RECIPE, silent], [1, 0.5], seed=2)
    product = pl.Superposition([RECIPE, RECIPE], product=(0, 1), seed=2)
    tree = pl.generate(pl.Recipe(60, 3, "one_cluster", seeds=5)).forest
    corpora = [Corpus([RECIPE, tree], length=8, min_size=4, seed=1), Corpus(RECIPE, length=4, renewal=0.5, seed=2)]
    return [json.loads(made.to_json()) for made in (RECIPE, edited, grouped, silent, graph, world, product, *corpora)]


def attack_recipes(count, seed):
    """Make what so many recipes say, if it is small."""
    known = recipes()

    def make_try(random):
        values = pick(random, known)
        is_corpus = "lexicons" in values
        for _ in range(random.integers(0, 3)):
            values = spoilt_words(values, random)
        found = parse_json(spoilt_text(json.dumps(values), random))
        if is_corpus:
            sources = found.get("lexicons")
            sizes = (
                [part.get("n_points") for part in sources if isinstance(part, dict)]
                if isinstance(sources, list)
                else []
            )
            if any(isinstance(size, int) and size > 1000 for size in sizes):
                raise ValueError("too large to be tried: a corpus makes its lexicons at once")
            made = Corpus.from_dict(found)
            assert Corpus.from_json(made.to_json()) == made
            if made.length <= 64:
                made.beliefs(made.documents(0, 3).tokens)
            return
        made = recipe_from_dict(found)
        assert recipe_from_dict(json.loads(made.to_json())) == made
        sizes = [(part.n_points, part.dim) for part in getattr(made, "factors", [made])]
        if max(n for n, _ in sizes) <= 100 and max(dim for _, dim in sizes) <= 20 and made.dim <= 20:
            pl.generate(made, threads=1)

    return tried(count, seed, make_try)


# ---------------------------------------------------------------------- manifests


def attack_manifests(count, seed):
    """Read so many stores of which a description is changed, by words or by bytes, digests made to match."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, read=0, refused=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = list(attack_files.small_stores(folder))
        for _ in range(count):
            path = pick(random, stores)
            files = [file for file in attack_files.files_of(path) if file.endswith("zarr.json")]
            file = "zarr.json" if random.random() < 0.5 else pick(random, files)
            with attack_files.restored(path, {file, "zarr.json"}):
                values = json.loads((path / file).read_text())
                for _ in range(random.integers(1, 3)):
                    values = spoilt_words(values, random)
                (path / file).write_bytes(spoilt_text(json.dumps(values), random))
                if random.random() < 0.8:
                    attack_files.reseal(path)
                try:
                    attack_files.read_all(pl.load(path), random, folder, counts)
                    counts["read"] += 1
                except REFUSALS as fault:
                    counts["refused"] += in_one_line(fault)
    return counts


# ---------------------------------------------------------------------- exports


def attack_exports(count, seed):
    """Read so many exports whose columns are not what they should be, and use what is read."""
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    dataset = pl.generate(pl.Recipe(60, 3, seeds=3))
    counts = Counter()

    def spoilt_parts(parts, random):
        parts = {name: values for name, values in parts.items() if random.random() < 0.99}
        for _ in range(random.integers(1, 3)):
            name = pick(random, list(parts))
            parts[name] = spoilt_array(parts[name], random)
        return parts

    def as_hdf5(random):
        with h5py.File(folder / "whole.h5") as file:
            parts, words = {name: file[name][()] for name in file if name != "extra"}, dict(file.attrs)
        with h5py.File(folder / "spoilt.h5", "w") as file:
            for name, values in spoilt_parts(parts, random).items():
                if values.dtype.kind in "biufcS":
                    file[name] = values
            for name, text in words.items():
                file.attrs[name] = text if random.random() < 0.9 else spoilt_text(text, random).replace(b"\x00", b"")
            if random.random() < 0.1:
                file.pop("X", None)
                file["X"] = pick(
                    random, (h5py.ExternalLink("whole.h5", "X"), h5py.SoftLink("y"), h5py.SoftLink("none"))
                )
        return exports.read_hdf5(folder / "spoilt")

    def as_parquet(random):
        for kind in ("points", "latents"):
            table = pq.read_table(folder / "whole" / f"{kind}.parquet")
            flat = [name for name in table.column_names if name != "X"]
            parts = spoilt_parts({name: table[name].to_numpy() for name in flat}, random)
            columns = {
                name: pa.array(values)
                for name, values in parts.items()
                if values.ndim == 1 and values.dtype.kind in "biuf" and values.dtype.isnative
            }
            longest = max(map(len, columns.values()), default=0)
            columns = {name: values for name, values in columns.items() if len(values) == longest}
            if "X" in table.column_names and len(table) == longest and random.random() < 0.99:
                columns["X"] = table["X"]
            words = {
                key: value if random.random() < 0.9 else spoilt_text(value.decode(), random)
                for key, value in table.schema.metadata.items()
            }
            pq.write_table(pa.table(columns).replace_schema_metadata(words), folder / "spoilt" / f"{kind}.parquet")
        return exports.read_parquet(folder / "spoilt")

    def as_npz(random):
        for name in ("", "_gt_features"):
            parts = spoilt_parts(dict(np.load(folder / f"whole{name}.npz")), random)
            (folder / f"spoilt{name}.npz").write_bytes(npz(parts, random))
        with np.errstate(all="ignore"):
            return exports.read_npz(folder / "spoilt")

    def make_try(random):
        found = pick(random, (as_hdf5, as_parquet, as_npz))(random)
        if isinstance(found, pl.Dataset):
            exercise(found, random, folder, counts)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spoilt").mkdir()
        for write in (exports.to_hdf5, exports.to_parquet, exports.to_npz):
            write(dataset, folder / "whole")
        return tried(count, seed, make_try)
