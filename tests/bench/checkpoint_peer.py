# SPDX-License-Identifier: Apache-2.0
"""One rank of the peer of `checkpoint`: the same mlp with DistributedDataParallel (gloo) and fused Adam, saved by
torch.save on rank 0 or by torch.distributed.checkpoint's async_save on all ranks.

Each rank writes [[wall time, in the save] of each step], in seconds, to --out/RANK.json.
"""

import argparse
import json
import pathlib
import shutil
import time

import torch
import torch.distributed
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel


class Saver:
    """Keeps the newest checkpoint alone."""

    def __init__(self, way, folder, model, optimizer):
        self.way, self.folder, self.model, self.optimizer = way, folder, model, optimizer
        self.rank, self.future, self.count = torch.distributed.get_rank(), None, 0
        # In the default group its thread's collectives meet those of the steps, and both hang.
        self.group = torch.distributed.new_group(backend="gloo")

    def save(self):
        self.count += 1
        if self.way == "torch.save":
            if self.rank == 0:
                state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
                torch.save(state, self.folder / "new.pt")
                (self.folder / "new.pt").rename(self.folder / "last.pt")
            return
        if self.future:  # one at a time
            self.finish()
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        self.future = torch.distributed.checkpoint.async_save(
            state, checkpoint_id=self.folder / f"{self.count}", process_group=self.group
        )

    def finish(self):
        if self.future:
            self.future.result()
            self.future = None
            if self.rank == 0:
                shutil.rmtree(self.folder / f"{self.count - 1}", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("none", "torch.save", "dcp"), required=True)
    for name in ("width", "batch", "every", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, options.width), nn.ReLU(), nn.Linear(options.width, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    images, labels = torch.rand(options.batch // ranks, 1, 28, 28), torch.randint(0, 10, (options.batch // ranks,))
    saver = Saver(options.way, options.out, model, optimizer)
    seen, end = [], time.perf_counter()
    for step in range(options.steps):
        if options.way != "none" and step > 0 and step % options.every == 0:
            saver.save()
        saved = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        begun, end = end, time.perf_counter()
        seen.append([end - begun, saved - begun])
    saver.finish()
    (options.out / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(seen))
    torch.distributed.destroy_process_group()


main()
