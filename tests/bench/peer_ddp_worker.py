# SPDX-License-Identifier: Apache-2.0
"""One rank of the peer: the same CNN on the same data with torchrun and DistributedDataParallel.

Rank 0 writes {"first_step": unix time, "samples_per_s": steady rate, "loss": last} to --out.
"""

import argparse
import gzip
import json
import pathlib
import time

import numpy
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

MEAN, STDDEV = 0.2860, 0.3530
WARM_UP_STEPS = 20


class Cnn(nn.Module):
    """1,630,090 parameters on 1x28x28."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 7 * 7, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, images):
        x = torch.max_pool2d(torch.relu(self.conv1(images)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Samples(Dataset):
    """Sample by sample, as a map-style data set is written."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return normalize(self.images[index]), self.labels[index]


def read_idx(path, header_bytes):
    raw = gzip.decompress(path.read_bytes())
    return torch.from_numpy(numpy.frombuffer(raw, numpy.uint8, offset=header_bytes).copy())


def read_data(folder):
    images = read_idx(folder / "train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz", 8).long()
    return images, labels


def normalize(pixels):
    return (pixels.float() / 255 - MEAN) / STDDEV


def loader_batches(images, labels, per_rank, workers):
    data = Samples(images, labels)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    sampler.set_epoch(0)
    return DataLoader(data, batch_size=per_rank, sampler=sampler, num_workers=workers)


def memory_batches(images, labels, per_rank):
    """The data as floats in memory, a batch by one indexing operation: the peer's fastest way."""
    images = normalize(images)
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    for start in range(0, len(labels), per_rank * ranks):
        mine = order[start : start + per_rank * ranks][rank::ranks]
        yield images[mine], labels[mine]


def train(model, batches, limit):
    """Returns the unix times of all finished steps and the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    times, loss = [], None
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        times.append(time.time())
        if len(times) == limit:
            break
    return times, loss.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--variant", choices=["memory", "loader"], required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128, help="over all ranks")
    parser.add_argument("--steps", type=int, default=0, help="stop early; 0 is one epoch")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return parser.parse_args()


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Cnn(), gradient_as_bucket_view=True)
    images, labels = read_data(args.data)
    per_rank = args.batch // torch.distributed.get_world_size()
    if args.variant == "memory":
        batches = memory_batches(images, labels, per_rank)
    else:
        batches = loader_batches(images, labels, per_rank, args.workers)
    times, loss = train(model, batches, args.steps)
    if torch.distributed.get_rank() == 0:
        steady = (len(times) - 1 - WARM_UP_STEPS) * args.batch / (times[-1] - times[WARM_UP_STEPS])
        result = {"first_step": times[0], "samples_per_s": steady, "loss": loss}
        args.out.write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


main()
