# SPDX-License-Identifier: Apache-2.0
"""The peers of `io`: makes their files of a packed data set, and runs one of them.

A run delivers shuffled batches of 256 normalised float32 images with int64 labels, and prints
{"samples_per_s": steady rate} or, with --check, what one epoch held. `h5py` is as people write it;
choices elsewhere favour the peer: other peers normalise whole batches, labels of HDF5 files are in
memory, chunks of compressed ones are small.
"""

import argparse
import glob
import io
import itertools
import json
import pathlib
import tarfile
import time

import h5py
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

BATCH, MEAN, STDDEV = 256, 0.2860, 0.3530
# None: `compression="gzip"` and nothing else, for which h5py cuts rows.
GZIP_CHUNK_BYTES = {"h5py-gzip-200k": 200 << 10, "h5py-gzip-50k": 50 << 10, "h5py-gzip-auto": None}
TARS = 4
torch.set_num_threads(1)


def normalized(pixels):
    """u8 to float32."""
    return pixels.float().mul_(1 / (255 * STDDEV)).sub_(MEAN / STDDEV)


# Files


def gzip_chunks(images, chunk_bytes):
    """Whole rows of about `chunk_bytes`; what h5py chooses where that is None."""
    if chunk_bytes is None:
        return True
    rows = max(1, chunk_bytes // images[0].nbytes)
    return (min(rows, len(images)), *images.shape[1:])


def make_gzip(images, labels, folder):
    folder.mkdir()
    for name, chunk_bytes in GZIP_CHUNK_BYTES.items():
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("data/images", data=images, compression="gzip", compression_opts=4,
                                chunks=gzip_chunks(images, chunk_bytes))
            file["data/labels"] = labels


def add_member(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def make_tars(images, labels, folder):
    folder.mkdir()
    for part in range(TARS):
        with tarfile.open(folder / f"{part}.tar", "w") as tar:
            for i in range(part, len(labels), TARS):
                add_member(tar, f"{i:08}.bin", images[i].tobytes())
                add_member(tar, f"{i:08}.cls", str(int(labels[i])).encode())


def make_mds(images, labels, folder):
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"x": "bytes", "y": "int"}) as writer:
        for image, label in zip(images, labels):
            writer.write({"x": image.tobytes(), "y": int(label)})


def make_files(args):
    with h5py.File(next(args.packed.glob("*.h5")), "r") as file:
        images, labels = file["data/images"], file["data/labels"][:]
        few = args.sequential_samples or len(labels)
        make_gzip(images[: args.gzip_samples or None], labels[: args.gzip_samples or None],
                  args.out / "gzip")
        make_tars(images[:few], labels[:few], args.out / "tar")
        make_mds(images[:few], labels[:few], args.out / "mds")
        shape = {"shape": images.shape[1:]}
    print(json.dumps(shape))
    (args.out / "shape.json").write_text(json.dumps(shape))


# Loaders: iterables of (normalised images, labels)


class RawRows(Dataset):
    """Sample by sample; each worker opens the file itself."""

    def __init__(self, path):
        self.path, self.images = path, None
        with h5py.File(path, "r") as file:
            self.labels = file["data/labels"][:]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        if self.images is None:
            self.images = h5py.File(self.path, "r")["data/images"]
        return self.images[index], self.labels[index]


class Rows(RawRows):
    """As a map-style data set is usually written: normalised tensors."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return normalized(torch.from_numpy(image)), label


def stacked(samples):
    images, labels = zip(*samples)
    return torch.from_numpy(numpy.stack(images)), torch.from_numpy(numpy.asarray(labels))


def h5py_loader(path, workers):
    return DataLoader(Rows(path), batch_size=BATCH, shuffle=True, num_workers=workers)


def tuned_h5py_loader(path, workers):
    """Batches are put together by numpy and normalised at once."""
    loader = DataLoader(
        RawRows(path), batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=stacked
    )
    for images, labels in loader:
        yield normalized(images), labels


def webdataset_loader(folder, shape, workers):
    import webdataset

    def decoded(sample):
        image = numpy.frombuffer(sample["bin"], numpy.uint8).reshape(shape)
        return image, int(sample["cls"])

    urls = sorted(glob.glob(f"{folder}/*.tar"))
    data = webdataset.WebDataset(urls, shardshuffle=TARS).shuffle(1000).map(decoded)
    data = data.batched(BATCH, collation_fn=stacked)
    for images, labels in webdataset.WebLoader(data, batch_size=None, num_workers=workers):
        yield normalized(images), labels


def mds_loader(folder, shape, workers):
    from streaming import StreamingDataset

    def collated(samples):
        images = [numpy.frombuffer(sample["x"], numpy.uint8).reshape(shape) for sample in samples]
        return stacked([(image, sample["y"]) for image, sample in zip(images, samples)])

    data = StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH)
    loader = DataLoader(data, batch_size=BATCH, num_workers=workers, collate_fn=collated)
    for images, labels in loader:
        yield normalized(images), labels


def dali_loader(folder, shape, threads):
    from nvidia.dali import fn, pipeline_def, types

    channels, height, width = shape

    @pipeline_def(batch_size=BATCH, num_threads=max(1, threads), device_id=None)
    def read():
        image, label = fn.readers.webdataset(
            name="tar",
            paths=sorted(glob.glob(f"{folder}/*.tar")),
            ext=["bin", "cls"],
            dtypes=[types.UINT8, types.UINT8],
            random_shuffle=True,
            initial_fill=1000,
        )
        image = fn.reshape(image, shape=[channels, height, width], layout="CHW")
        scale = 1 / (255 * STDDEV)
        return fn.normalize(image, mean=255 * MEAN, scale=scale, stddev=1.0), label

    pipeline = read()
    pipeline.build()
    left = pipeline.epoch_size("tar")
    while left > 0:
        images, labels = pipeline.run()
        rows = min(left, BATCH)
        digits = torch.from_numpy(labels.as_array()[:rows, 0].astype(numpy.int64))
        yield torch.from_numpy(images.as_array()[:rows]), digits - ord("0")
        left -= rows


def batches_of(args):
    shape = tuple(json.loads((args.files / "shape.json").read_text())["shape"])
    if args.peer == "h5py":
        return h5py_loader(next(args.packed.glob("*.h5")), args.workers)
    if args.peer == "h5py-tuned":
        return tuned_h5py_loader(next(args.packed.glob("*.h5")), args.workers)
    if args.peer in GZIP_CHUNK_BYTES:
        return h5py_loader(args.files / "gzip" / f"{args.peer}.h5", args.workers)
    if args.peer == "webdataset":
        return webdataset_loader(args.files / "tar", shape, args.workers)
    if args.peer == "mosaicml-streaming":
        return mds_loader(args.files / "mds", shape, args.workers)
    return dali_loader(args.files / "tar", shape, args.workers)


def content(batches):
    """What an epoch held: the number of samples, the sum of the labels, the mean of the pixels."""
    samples, labels, pixels = 0, 0, 0.0
    for images, numbers in batches:
        assert images.dtype == torch.float32 and numbers.dtype == torch.int64
        samples += len(numbers)
        labels += int(numbers.sum())
        pixels += float(images.double().mean(dim=list(range(1, images.ndim))).sum())
    mean = (pixels / samples * STDDEV + MEAN) * 255
    return {"samples": samples, "label_sum": labels, "pixel_mean": mean}


def steady_rate(batches, warm_up, seconds):
    """Samples per second after `warm_up` batches, over `seconds` or the rest of the epoch."""
    batches = iter(batches)
    for _ in itertools.islice(batches, warm_up):
        pass
    samples, since = 0, time.perf_counter()
    until = since
    for images, _ in batches:
        if len(images) < BATCH:
            break
        samples, until = samples + len(images), time.perf_counter()
        if until - since > seconds:
            break
    return samples / (until - since)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("make")
    make.set_defaults(run=make_files)
    make.add_argument("--packed", type=pathlib.Path, required=True)
    make.add_argument("--out", type=pathlib.Path, required=True)
    make.add_argument("--gzip-samples", type=int, default=0)
    make.add_argument("--sequential-samples", type=int, default=0, help="in tar and mds; 0: all")
    run = commands.add_parser("run")
    run.set_defaults(run=run_peer)
    peers = ["h5py", "h5py-tuned", *GZIP_CHUNK_BYTES, "webdataset", "mosaicml-streaming", "dali"]
    run.add_argument("--peer", choices=peers, required=True)
    run.add_argument("--packed", type=pathlib.Path, required=True)
    run.add_argument("--files", type=pathlib.Path, required=True)
    run.add_argument("--workers", type=int, default=0)
    run.add_argument("--seconds", type=float, default=2)
    run.add_argument("--check", action="store_true")
    return parser.parse_args()


def run_peer(args):
    batches = batches_of(args)
    print(json.dumps(content(batches) if args.check
                     else {"samples_per_s": steady_rate(batches, 4 + 4 * args.workers, args.seconds)}))


given = parse()
given.run(given)
