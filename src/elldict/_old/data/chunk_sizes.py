"""How many bytes a chunk of a zarr array becomes when it is decoded, found out before: a few may become gigabytes.

Codecs take whatever memory a chunk claims to need. Zstd, Blosc and LZ4 say it in their first bytes; what the codecs of
the standard library make of a chunk is counted piece by piece, once, and thrown away.
"""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from elldict.exceptions import SamplesFileError

PIECE_BYTES = 2**16
"""Bytes that are read, and decoded, at a time."""

LEAST_BYTES = 2**26
"""Bytes that any chunk may have when it is decoded: they do no harm, and some codecs claim more than they need."""

LZMA_MEMORY = 2**28
"""Memory that LZMA may take beside the chunk; its strongest setting takes 2**26."""

PREFIXES = ("crc32", "adler32")
"""Codecs that put a checksum of four bytes before what they are given; others put theirs behind it."""

CHECKSUMS = (*PREFIXES, "crc32c", "fletcher32", "jenkins_lookup3")

SIZE_KEEPING = ("bytes", "endian", "transpose", "shuffle", "bitround", *CHECKSUMS)
"""Codecs that give a number as many bytes as they get for it, and compress nothing."""

ABSENT = (2**64 - 1, 2**64 - 1)
"""Place and length of a chunk that a shard leaves out, because all of it is the fill value."""

ZSTD_FRAME, ZSTD_SKIPPABLE = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)
ZSTD_BLOCK_BYTES = 2**17


@dataclass(frozen=True)
class Piece:
    """Some bytes of an open file."""

    stream: IO[bytes]
    start: int
    length: int

    def read(self, at: int, count: int) -> bytes:
        """Bytes from a place in the piece; fewer where it ends."""
        self.stream.seek(self.start + at)
        return self.stream.read(max(0, min(count, self.length - at)))

    def number(self, at: int, count: int) -> int:
        """Bytes from a place in the piece, as a number; the lowest first."""
        return int.from_bytes(self.read(at, count), "little")


@dataclass(frozen=True)
class Encoding:
    """How chunks are compressed, and how large they may be."""

    codec: str  # empty if they are not
    settings: Mapping[str, Any] = field(compare=False)
    skip: int  # bytes before what the codec has written
    most: int  # bytes of a chunk, decoded
    n_inner: int = 0  # chunks of a shard; 0 if there are no shards
    index_first: bool = False  # in a shard, the index comes before the chunks
    index_rest: int = 0  # bytes of the index behind its numbers
    least: int = 0  # bytes of a chunk, decoded; 0 if a filter changes how many there are

    @classmethod
    def of(cls, metadata: Mapping[str, Any], where: str, chunk_bytes: int, n_inner: int) -> Encoding:
        """Encoding from the metadata of an array; refuses one of which it cannot be known what chunks become."""
        codecs = [_name_codec(part) for part in metadata.get("codecs") or ()]
        index_first, index = False, []
        if n_inner:
            ((_, settings),) = codecs
            codecs = [_name_codec(part) for part in settings["codecs"]]
            index_first = str(settings.get("index_location", "end")).endswith("start")
            index = [_name_codec(part) for part in settings["index_codecs"]]
        for part in (*(metadata.get("filters") or ()), metadata.get("compressor")):
            codecs += [] if part is None else [_name_codec(part)]
        used = [codec for codec in codecs if codec[0] in MEASURES]
        names, index_names = [name for name, _ in codecs], [name for name, _ in index]
        little = all(str(settings.get("endian", "little")).endswith("little") for _, settings in index)
        if len(used) > 1 or "sharding_indexed" in names or index_names[1:] not in ([], ["crc32c"]) or not little:
            raise SamplesFileError(
                f"{where} is encoded by {', '.join(names)}{' in shards' if n_inner else ''}: what becomes of a chunk "
                "is not known before it is decoded. Write it again with one compressor, and shards as zarr writes them."
            )
        codec, settings = used[0] if used else ("", {})
        most, skip = max(2 * chunk_bytes, LEAST_BYTES), 4 * sum(name in PREFIXES for name in names)
        least = chunk_bytes if {*names} <= {*SIZE_KEEPING, codec} else 0
        return cls(codec, settings, skip, most, n_inner, index_first, 4 * len(index_names[1:]), least)

    def check(self, path: Path, where: str) -> None:
        """Raise if what lies in this file would become more than a chunk may be, or less than a chunk is.

        Memory for all of a chunk, of whatever size the metadata declare, is taken before it is decoded.
        """
        with path.open("rb") as stream:
            for piece in self._list_pieces(path, stream, where):
                if self.codec == "blosc" and piece.number(12, 4) > piece.length:
                    # Blosc would read on beyond the end, and decode whatever memory holds there
                    raise SamplesFileError(
                        f"{path} is truncated: it holds {piece.length} bytes of a chunk of {piece.number(12, 4)}. Copy "
                        "or write it again."
                    )
                found = MEASURES[self.codec](piece, self.most, self.settings) if self.codec else piece.length
                if found > self.most:
                    raise SamplesFileError(
                        f"{path} holds a chunk of {piece.length} bytes that becomes at least {found} bytes when it is "
                        f"decoded, expected at most {self.most}. It is damaged, or was made to fill the memory."
                    )
                if found < self.least:
                    raise SamplesFileError(
                        f"{where} is damaged: it has {piece.length} bytes, which become {found} when they are decoded, "
                        f"expected {self.least}. Copy or write it again."
                    )

    def _list_pieces(self, path: Path, stream: IO[bytes], where: str) -> Iterator[Piece]:
        """What the codec has written: the file, or the chunks that the index of a shard names."""
        size, n_bytes = os.fstat(stream.fileno()).st_size, 16 * self.n_inner
        if not self.n_inner:
            yield Piece(stream, self.skip, size - self.skip)
            return
        if n_bytes + self.index_rest > size:
            raise SamplesFileError(
                f"{path} is a shard of {self.n_inner} chunks, whose index alone takes {n_bytes} bytes; it has {size}."
            )
        index = Piece(stream, 0 if self.index_first else size - n_bytes - self.index_rest, n_bytes).read(0, n_bytes)
        for start, length in np.frombuffer(index, "<u8").reshape(-1, 2).tolist():
            if (start, length) == ABSENT:
                continue
            if start + length > size:
                raise SamplesFileError(
                    f"{where} is damaged: its index places a chunk at byte {start}, with {length} bytes, and it has "
                    f"{size}. Copy or write it again."
                )
            yield Piece(stream, start + self.skip, length - self.skip)


def _name_codec(part: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and settings of a codec, as either format writes it."""
    if isinstance(part, str):
        return part, {}
    plain = dict(part if isinstance(part, Mapping) else part.get_config())
    name = str(plain.get("name", plain.get("id", ""))).removeprefix("numcodecs.")
    return name, plain.get("configuration") or plain


def _measure_zstd(piece: Piece, most: int, _: Mapping[str, Any]) -> int:
    """Bytes that frames claim; of a frame that claims nothing, the most that its blocks can become."""
    total = at = 0
    while total <= most and at + 4 < piece.length:
        magic = piece.number(at, 4)
        if magic in ZSTD_SKIPPABLE:
            at += 8 + piece.number(at + 4, 4)
            continue
        if magic != ZSTD_FRAME:
            break
        flags = piece.number(at + 4, 1)
        single, field = flags >> 5 & 1, flags >> 6
        at += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
        n_bytes = (single, 2, 4, 8)[field]
        if n_bytes:  # no decoder goes on beyond what the first frame claims
            return total + piece.number(at, n_bytes) + (256 if field == 1 else 0)
        last = False
        while not last and total <= most and at < piece.length:
            block = piece.number(at, 3)
            last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            total += ZSTD_BLOCK_BYTES if kind == 2 else size  # 2: compressed; 1: one byte, repeated; 0: as it is
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (flags >> 2 & 1)
    return total


def _count_decoded(piece: Piece, most: int, make: Callable[[], Any]) -> int:
    """Bytes that a decoder of the standard library makes of a piece, counted until they are too many."""
    decoder, total, at = make(), 0, 0
    data = b""
    try:
        while total <= most:
            if decoder.eof:
                data = decoder.unused_data or piece.read(at, PIECE_BYTES)
                at += 0 if decoder.unused_data else len(data)
                if not data:
                    break
                decoder = make()  # several streams may follow each other
            elif not data and getattr(decoder, "needs_input", True):
                data = piece.read(at, PIECE_BYTES)
                at += len(data)
                if not data:
                    break
            total += len(decoder.decompress(data, PIECE_BYTES))
            data = getattr(decoder, "unconsumed_tail", b"")
    except (zlib.error, OSError, EOFError, ValueError):  # damage, of which the codec itself has more to say
        return total
    except lzma.LZMAError as error:
        return most + 1 if "limit" in str(error) else total
    return total


def _make_lzma(settings: Mapping[str, Any]) -> lzma.LZMADecompressor:
    if settings.get("format") == lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=settings["filters"])
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=LZMA_MEMORY)


MEASURES: dict[str, Callable[[Piece, int, Mapping[str, Any]], int]] = {
    "zstd": _measure_zstd,
    "blosc": lambda piece, most, settings: piece.number(4, 4),  # noqa: ARG005
    "lz4": lambda piece, most, settings: piece.number(0, 4),  # noqa: ARG005
    "gzip": lambda piece, most, settings: _count_decoded(piece, most, lambda: zlib.decompressobj(31)),  # noqa: ARG005
    "zlib": lambda piece, most, settings: _count_decoded(piece, most, zlib.decompressobj),  # noqa: ARG005
    "bz2": lambda piece, most, settings: _count_decoded(piece, most, bz2.BZ2Decompressor),  # noqa: ARG005
    "lzma": lambda piece, most, settings: _count_decoded(piece, most, lambda: _make_lzma(settings)),
}
"""Bytes that a piece becomes, by codec; of those that need to be counted, no more than the first beyond `most`."""
