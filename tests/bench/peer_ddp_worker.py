# SPDX-License-Identifier: Apache-2.0
"""One rank of the peer: the same model on data of the same shape with torchrun and DistributedDataParallel;
with --alone one process that has nobody to talk to.

Rank 0 writes {"first_step": unix time, "samples_per_s": steady rate, "steps_s": [...], "loss": last} to --out.
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


class Cnn(nn.Module):
    """1,630,090 parameters on 1x28x28."""

    def __init__(self, like):
        super().__init__()
        self.pools_first = like == "lockstep"
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 7 * 7, 512)
        self.fc2 = nn.Linear(512, 10)

    def shrunk(self, x):
        return torch.relu(torch.max_pool2d(x, 2)) if self.pools_first else torch.max_pool2d(torch.relu(x), 2)

    def forward(self, images):
        x = self.shrunk(self.conv2(self.shrunk(self.conv1(images))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Gpt(nn.Module):
    """GPT-2 of 256 bytes and 256 tokens by transformers: 10,844,160 parameters."""

    def __init__(self, like):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        shape = {"vocab_size": 256, "n_positions": 256, "n_embd": 384, "n_layer": 6, "n_head": 6}
        gelu = "gelu_pytorch_tanh" if like == "lockstep" else "gelu_new"  # in one operator, in eight
        self.whole = GPT2LMHeadModel(
            GPT2Config(**shape, activation_function=gelu, use_cache=False, bos_token_id=None, eos_token_id=None)
        )

    def forward(self, tokens):
        return self.whole(tokens).logits


def made(model, like):
    if model == "cnn":
        return Cnn(like)
    if model == "gpt":
        return Gpt(like)
    import torchvision

    return torchvision.models.resnet18(num_classes=10)


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


def data_of(model, folder, samples=1024):
    """Fashion-MNIST; of the others what the speed of a step sees of data: their shapes."""
    if model == "cnn":
        return (read_idx(folder / "train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28),
                read_idx(folder / "train-labels-idx1-ubyte.gz", 8).long())
    if model == "gpt":
        tokens = torch.randint(0, 256, (samples, 257))
        return tokens[:, :-1], tokens[:, 1:]
    return torch.randint(0, 256, (samples, 3, 64, 64), dtype=torch.uint8), torch.randint(0, 10, (samples,))


def normalize(pixels):
    return (pixels.float() / 255 - MEAN) / STDDEV


def memory_batches(images, labels, per_rank, layout):
    """The data as floats in memory, a batch by one indexing operation: the peer's fastest way."""
    if images.dtype == torch.uint8:
        images = normalize(images)
    ranks, rank = place()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    for start in range(0, len(labels), per_rank * ranks):
        mine = order[start : start + per_rank * ranks][rank::ranks]
        # contiguous() would leave one channel as it is, and the convolutions would take it for outermost.
        yield images[mine].clone(memory_format=layout) if layout else images[mine], labels[mine]


def place():
    """Number of ranks, and which of them this is."""
    if not torch.distributed.is_initialized():
        return 1, 0
    return torch.distributed.get_world_size(), torch.distributed.get_rank()


def train(model, batches, limit):
    """Returns the unix times of all finished steps and the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    times, loss = [], None
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images).flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        times.append(time.time())
        if len(times) == limit:
            break
    return times, loss.item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["cnn", "resnet18", "gpt"], default="cnn")
    parser.add_argument("--like", choices=["book", "lockstep"], default="book",
                        help="lockstep: channels innermost, pooling before relu, gelu in one operator")
    parser.add_argument("--alone", action="store_true", help="one process without communication")
    parser.add_argument("--data", type=pathlib.Path, help="Fashion-MNIST's files, for cnn")
    parser.add_argument("--variant", choices=["memory", "loader"], default="memory")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128, help="over all ranks")
    parser.add_argument("--steps", type=int, default=0, help="stop early; 0 is one epoch")
    parser.add_argument("--warm-up", type=int, default=20, help="steps that do not count")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return parser.parse_args()


def batches_of(args):
    images, labels = data_of(args.model, args.data)
    per_rank = args.batch // place()[0]
    if args.variant == "memory":
        layout = torch.channels_last if args.like == "lockstep" and images.dim() == 4 else None
        return memory_batches(images, labels, per_rank, layout)
    data = Samples(images, labels)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    sampler.set_epoch(0)
    return DataLoader(data, batch_size=per_rank, sampler=sampler, num_workers=args.workers)


def main():
    args = parse()
    torch.set_num_threads(1)
    if not args.alone:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = made(args.model, args.like)
    if args.like == "lockstep":
        model = model.to(memory_format=torch.channels_last)
    if not args.alone:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    times, loss = train(model, batches_of(args), args.steps)
    if place()[1] == 0:
        steps_s = numpy.diff(times[args.warm_up:])
        args.out.write_text(json.dumps({"first_step": times[0], "samples_per_s": len(steps_s) * args.batch / sum(steps_s),
                                        "steps_s": steps_s.tolist(), "loss": loss}))
    if not args.alone:
        torch.distributed.destroy_process_group()


main()
