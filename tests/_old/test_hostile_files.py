"""Files made or changed to mislead: refused at once, with what was found, and without more memory than they hold.

Rows 42 to 48 of the catalogue of faults; row 43, and more of rows 42 and 47, stand in test_files.py and
test_checkpoint.py.
"""

import bz2
import gzip
import json
import lzma
import math
import os
import stat
import tracemalloc
import zlib
from contextlib import contextmanager
from dataclasses import replace

import numcodecs
import numpy as np
import pytest
import zarr

import elldict
from elldict import LpDictionaryLearning, open_samples
from elldict._old.checkpoint import CheckpointError
from elldict._old.data.dataset import ArrayDataset
from elldict._old.data.file import sum_blocks
from elldict.exceptions import SamplesChangedError, SamplesFileError

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, pipes and devices are a matter of POSIX")


@pytest.fixture(scope="module")
def X():  # noqa: N802
    X, _, _ = elldict.datasets.make_bernoulli_gaussian(3000, 6, density=0.3, random_state=0)
    X.setflags(write=False)
    return X


@pytest.fixture(scope="module")
def model(X):
    return LpDictionaryLearning(random_state=0).fit(X)


@pytest.fixture
def npy(X, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    return path


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def write_zarr(X, folder):
    path = folder / "x.zarr"
    array = zarr.create_array(path, shape=X.shape, chunks=(500, 6), dtype=X.dtype, compressors=None)
    array[:] = X
    return path


# --- 44: what a header says ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "found"), [(-8, "is truncated"), (1, "is longer than its header says")])
def test_fault_44_a_npy_file_is_as_long_as_its_header_says(npy, change, found):
    size = npy.stat().st_size
    os.truncate(npy, size + change)
    with pytest.raises(SamplesFileError, match=rf"x\.npy {found}: it ends at byte {size + change},.* at byte {size}\."):
        open_samples(npy)


@pytest.mark.parametrize("version", [(0, 0), (1, 1), (2, 7), (4, 0), (255, 255)])
def test_fault_44_unknown_versions_of_npy_are_refused(npy, version):
    """Each written as version 2.0 is, which others were taken for."""
    content = npy.read_bytes()
    length = int.from_bytes(content[8:10], "little")
    npy.write_bytes(content[:6] + bytes(version) + length.to_bytes(4, "little") + content[10:])
    with pytest.raises(SamplesFileError, match=rf"of version {version[0]}\.{version[1]} .*expected one of 1\.0, 2\.0"):
        open_samples(npy)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_fault_44_known_versions_of_npy_are_read(X, tmp_path, version):
    with (tmp_path / "x.npy").open("wb") as stream:
        np.lib.format.write_array(stream, X, version=version)
    np.testing.assert_array_equal(open_samples(tmp_path / "x.npy").take(np.arange(3)), X[:3])


# --- 45: memory and time by what is there -----------------------------------------------------------------------------


@contextmanager
def little_memory(most=60e6):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def declare(path, **changes):
    """Change what the metadata of a zarr array say."""
    header = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps({**header, **changes}))


def test_fault_45_chunks_that_a_zarr_array_only_claims_take_no_memory(X, tmp_path):
    path = write_zarr(X, tmp_path)
    grid = {"name": "regular", "configuration": {"chunk_shape": [1, 6]}}
    declare(path, shape=[10**8, 6], chunk_grid=grid)
    with little_memory(), pytest.raises(SamplesFileError, match="chunk c/6/0 of 100000000 is missing"):
        open_samples(path)
    array = zarr.create_array(zarr.storage.MemoryStore(), shape=(10**8, 6), chunks=(1, 6), dtype="f8")
    with little_memory(), pytest.raises(SamplesFileError, match="claims 100000000 chunks"):
        open_samples(array)


@pytest.mark.parametrize("chunk_shape", [[10**9, 6], [3000, 10**9]])
def test_fault_45_chunks_larger_than_their_array_take_no_memory(X, tmp_path, chunk_shape):
    path = write_zarr(X, tmp_path)
    declare(path, chunk_grid={"name": "regular", "configuration": {"chunk_shape": chunk_shape}})
    with little_memory(), pytest.raises(SamplesFileError, match=r"stored together have .* GB"):
        open_samples(path)


def endless_zstd():
    """A frame that does not say how much it holds: 600 blocks of a byte that is repeated."""
    blocks = [((2**17 << 3) | 2 | (number == 599)).to_bytes(3, "little") + b"\0" for number in range(600)]
    return (0xFD2FB528).to_bytes(4, "little") + b"\0\x50" + b"".join(blocks)


ZEROS = np.zeros(10**7)  # 80 MB, 500 rows of which are a chunk
BOMBS = {  # how a zarr array is compressed, and a chunk that becomes more than it may
    "zstd": ({"compressors": zarr.codecs.ZstdCodec()}, lambda: numcodecs.Zstd().encode(ZEROS)),
    "zstd_checked": (
        {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
        lambda: numcodecs.Zstd().encode(ZEROS) + b"1234",
    ),
    "zstd_of_unknown_size": ({"compressors": zarr.codecs.ZstdCodec()}, endless_zstd),
    "blosc": ({"compressors": zarr.codecs.BloscCodec()}, lambda: numcodecs.Blosc().encode(ZEROS)),
    "gzip": ({"compressors": zarr.codecs.GzipCodec()}, lambda: gzip.compress(bytes(10**6)) * 80),
    "format_2_lz4": ({"zarr_format": 2, "compressors": numcodecs.LZ4()}, lambda: numcodecs.LZ4().encode(ZEROS)),
    "format_2_zlib": ({"zarr_format": 2, "compressors": numcodecs.Zlib()}, lambda: zlib.compress(ZEROS)),
    "format_2_bz2": ({"zarr_format": 2, "compressors": numcodecs.BZ2()}, lambda: bz2.compress(bytes(10**6)) * 80),
    "format_2_lzma": (
        {"zarr_format": 2, "compressors": numcodecs.LZMA()},
        lambda: lzma.compress(bytes(10**6), preset=0) * 80,
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", BOMBS)
def test_fault_45_a_chunk_that_becomes_too_much_is_not_decoded(X, tmp_path, way):
    options, make = BOMBS[way]
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=X.shape, chunks=(500, 6), dtype=X.dtype, **options)[:] = X
    np.testing.assert_array_equal(open_samples(path).reader.read(0, len(X)), X)
    chunk = path / ("0.0" if "zarr_format" in options else "c/0/0")
    chunk.write_bytes(make())
    samples = open_samples(path)
    with little_memory(2e6), pytest.raises(SamplesFileError, match=r"becomes at least \d{8,} bytes when it is decoded"):
        samples.reader.read(0, 10)
    with pytest.raises(SamplesFileError, match="becomes at least"):
        samples.take(np.arange(3))


@pytest.mark.parametrize("location", ["start", "end"])
def test_fault_45_chunks_of_a_shard_are_looked_at_too(X, tmp_path, location, monkeypatch):
    codec = zarr.codecs.ShardingCodec(chunk_shape=(100, 6), index_location=location)
    codec = replace(codec, codecs=(zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()))
    path = tmp_path / "x.zarr"
    zarr.create_array(path, shape=X.shape, chunks=(1000, 6), dtype=X.dtype, serializer=codec, compressors=None)[:] = X
    np.testing.assert_array_equal(open_samples(path).reader.read(0, len(X)), X)
    monkeypatch.setattr("elldict._old.data.chunk_sizes.LEAST_BYTES", 0)
    chunk_bytes = 100 * 6 * 8
    reader = open_samples(path).reader
    assert reader.encoding.most == 2 * chunk_bytes
    tight = replace(reader, encoding=replace(reader.encoding, most=chunk_bytes - 1))
    with pytest.raises(SamplesFileError, match=f"becomes at least {chunk_bytes} bytes"):
        tight.read(0, 10)
    many = replace(reader, encoding=replace(reader.encoding, n_inner=10**9))
    with pytest.raises(
        SamplesFileError, match="a shard of 1000000000 chunks, whose index alone takes 16000000000 bytes"
    ):
        many.read(0, 10)


def test_fault_45_arrays_that_are_compressed_twice_are_refused(X, tmp_path):
    options = {"compressors": [zarr.codecs.GzipCodec(), zarr.codecs.ZstdCodec()]}
    zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(500, 6), dtype=X.dtype, **options)[:] = X
    with pytest.raises(SamplesFileError, match="is encoded by bytes, gzip, zstd: what becomes of a chunk is not known"):
        open_samples(tmp_path / "x.zarr")


@POSIX
@pytest.mark.parametrize("read", [elldict.load, open_samples], ids=["load", "open_samples"])
def test_fault_45_only_regular_files_are_opened(tmp_path, read):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read(path)


@POSIX
def test_fault_45_pipes_in_folders_are_not_opened(X, tmp_path):
    path = write_zarr(X, tmp_path)
    (path / "c/0/0").unlink()
    os.mkfifo(path / "c/0/0")
    with pytest.raises(SamplesFileError, match="chunk c/0/0 of 6 is missing"):
        open_samples(path)
    (path / ".zgroup").touch()
    (path / "zarr.json").unlink()
    os.mkfifo(path / "zarr.json")
    with pytest.raises(OSError, match=r"not a regular file.*zarr\.json"):
        open_samples(path)
    pytest.importorskip("pyarrow")
    (tmp_path / "parts").mkdir()
    os.mkfifo(tmp_path / "parts" / "1.parquet")
    with pytest.raises(OSError, match=r"not a regular file.*1\.parquet"):
        open_samples(tmp_path / "parts")


# --- 46: changed during the fit ---------------------------------------------------------------------------------------


def write_parquet(X, folder):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({f"f{k}": X[:, k] for k in range(X.shape[1])}), folder / "x.parquet")
    return folder / "x.parquet"


def write_npy(X, folder):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def wait_for_the_clock(path):
    """Until a change of now would have another date: the clock of files ticks every few milliseconds."""
    other = path.with_name("clock")
    while not other.exists() or other.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        other.touch()
    other.unlink()


def flip_and_set_back(path):
    """Change one bit in the middle, and keep size and date as they were."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as stream:
        stream.write(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns


@POSIX
@pytest.mark.parametrize(
    ("write", "name"), [(write_npy, "x.npy"), (write_zarr, "x.zarr/c/3/0"), (write_parquet, "x.parquet")]
)
def test_fault_46_a_file_whose_date_was_set_back_has_changed(X, tmp_path, write, name):
    source = write(X, tmp_path)
    wait_for_the_clock(tmp_path / name)

    def meddle(iteration):
        if iteration.iteration == 2:
            flip_and_set_back(tmp_path / name)

    with pytest.raises(SamplesChangedError, match=r"x\.\w+ has changed since it was opened"):
        LpDictionaryLearning(random_state=0, solver="power", refine=None).fit(source, callback=meddle)


def test_fault_46_a_file_written_to_through_a_map_has_changed(X, npy):
    """The dates of the file do not follow until the system writes the pages out."""
    mapped = np.load(npy, mmap_mode="r+")
    mapped[:] = X  # all pages are now to be written out, and no date changes when they are written to again
    samples = open_samples(npy)

    def meddle(iteration):
        if iteration.iteration == 2:
            mapped[1000:1200] = X[:200]

    with pytest.raises(SamplesChangedError, match="it has been written to"):
        LpDictionaryLearning(random_state=0, solver="power", refine=None).fit(samples, callback=meddle)


def test_fault_46_blocks_are_spread_over_the_whole_file(tmp_path):
    """Small files are looked at whole; of a large one, whatever twentieth of it has changed in one piece is seen."""
    path = tmp_path / "file"
    for size, share in [(1, 1.0), (64 * 2**12, 1 / 64), (3_000_001, 0.05)]:
        content = np.random.default_rng(0).bytes(size)
        path.write_bytes(content)
        before, length = sum_blocks(str(path)), math.ceil(share * size)
        for start in range(0, size - length + 1, length):
            path.write_bytes(content[:start] + bytes(length) + content[start + length :])
            assert sum_blocks(str(path)) != before


# --- 47: other samples than those of the checkpoint -------------------------------------------------------------------


def test_fault_47_any_change_of_samples_in_memory_is_noticed_however_many_there_are():
    X = np.zeros((1_200_000, 8))  # 77 MB
    before = ArrayDataset(X).fingerprint()
    X[600_000:615_600] += 1  # 1.3 %
    changed = ArrayDataset(X).fingerprint()
    X[600_000:615_600] -= 1
    assert ArrayDataset(X).fingerprint() == before
    X[987_654, 3] = 1e-300
    assert len({before, changed, ArrayDataset(X).fingerprint()}) == 3


def test_fault_47_a_checkpoint_of_other_samples_in_memory_is_refused(X, tmp_path, monkeypatch):
    monkeypatch.setattr("elldict._old.data.dataset.DIGEST_WHOLE_BYTES", 0)  # as if these were many
    monkeypatch.setattr("elldict._old.data.dataset.DIGEST_BLOCK_BYTES", 48)
    LpDictionaryLearning(random_state=0).fit(X, checkpoint=tmp_path / "fit.checkpoint")
    other = X.copy()
    other[1001:1040] *= 2
    with pytest.raises(CheckpointError, match="is the checkpoint of another fit: it has samples"):
        LpDictionaryLearning(random_state=0).fit(other, checkpoint=tmp_path / "fit.checkpoint", resume=True)


# --- 48: who may read ------------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_fault_48_overwriting_keeps_the_mode_of_a_file(X, model, tmp_path, mode, monkeypatch):
    codes, saved = tmp_path / "codes.npy", tmp_path / "model.npz"
    seen = set()
    write = np.lib.format.write_array_header_1_0

    def look(stream, header):
        seen.add(mode_of(next(tmp_path.glob(".*.tmp"))))
        write(stream, header)

    for path in (codes, saved):
        path.touch()
        path.chmod(mode)
    monkeypatch.setattr("elldict._old.data.writers.npy.write_array_header_1_0", look)
    model.transform(X, out=codes)
    model.save(saved)
    assert (mode_of(codes), mode_of(saved)) == (mode, mode)
    assert seen == {mode}, "nobody else may read it while it is written"
    assert len(np.load(codes)) == len(X)


@POSIX
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o775])
def test_fault_48_overwriting_keeps_the_mode_of_a_folder(X, model, tmp_path, mode):
    path = tmp_path / "codes.zarr"
    model.transform(X, out=path)
    path.chmod(mode)
    model.transform(X[:100], out=path)
    assert mode_of(path) == mode
    assert zarr.open_array(path).shape == (100, 6)


@POSIX
def test_fault_48_new_files_have_the_mode_of_all_others(model, tmp_path):
    (tmp_path / "other").touch()
    model.save(tmp_path / "model.npz")
    assert mode_of(tmp_path / "model.npz") == mode_of(tmp_path / "other")


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_fault_48_overwriting_keeps_the_owner(model, tmp_path):
    path = tmp_path / "model.npz"
    path.touch()
    path.chmod(0o600)
    os.chown(path, 1234, 2345)
    model.save(path)
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (1234, 2345, 0o600)


@POSIX
def test_fault_48_another_group_gets_no_access(model, tmp_path, monkeypatch):
    """As if the older file belonged to a group that whoever writes is no member of."""
    path = tmp_path / "model.npz"
    path.touch()
    path.chmod(0o660)
    other = list(path.stat())
    other[stat.ST_GID] += 1

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr("elldict._old.atomic.find_status", lambda _: os.stat_result(other))
    monkeypatch.setattr(os, "chown", refuse)
    model.save(path)
    assert mode_of(path) == 0o600
