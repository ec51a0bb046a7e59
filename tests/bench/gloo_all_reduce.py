# SPDX-License-Identifier: Apache-2.0
"""One rank of the peer: gloo's all-reduce through torch.distributed, as stock PyTorch has it.

Rank 0 prints {"BYTES": best seconds of one all-reduce, ...}.
"""

import argparse
import datetime
import json
import time

import torch
import torch.distributed as distributed

BLOCK_S, ROUNDS = 0.02, 3


def block(values, iterations):
    """Seconds of one all-reduce, of the slowest rank."""
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        distributed.all_reduce(values)
    seconds = torch.tensor([(time.perf_counter() - begin) / iterations], dtype=torch.float64)
    distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
    return seconds.item()


def best_time(size):
    values = torch.zeros(size // 4)
    block(values, 2)
    iterations = max(1, int(BLOCK_S / block(values, 2)))
    return min(block(values, iterations) for _ in range(ROUNDS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--meet", required=True, help="a file that does not exist yet")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{args.meet}",
        rank=args.rank,
        world_size=args.ranks,
        timeout=datetime.timedelta(seconds=120),
    )
    seen = {size: best_time(size) for size in args.sizes}
    if args.rank == 0:
        print(json.dumps(seen))
    distributed.destroy_process_group()


main()
