# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of gpu_training: steps of one model, as often as a line of stdin asks for them.

The first line of stdout says what PyTorch this is, or why there is none. Then each line such as 'eager fp32', 'graphed
tf32' or 'compile fp16' is answered with samples a second. Adam, fused; fp16 by autocast and a scaler; tf32 as PyTorch
has it by default, in convolutions; graphed: forward and backward as CUDA graphs. Channels are innermost, and samples
are in the GPU's memory from the beginning.
"""

import argparse
import json
import sys
import time

WARM_UP_STEPS = 5


def say(**words):
    print(json.dumps(words), file=sys.__stdout__, flush=True)


def give_up(why):
    say(why=why)
    sys.exit(0)


def made(model, classes):
    """resnet50 here: https://arxiv.org/abs/1512.03385, with the stride in the 3x3 convolution, as torchvision has it."""
    if model != "resnet50":
        import torchvision

        return torchvision.models.get_model(model, num_classes=classes)
    from torch import nn

    def normed(inputs, outputs, size, stride=1):
        return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Bottleneck(nn.Module):
        def __init__(self, inputs, width, stride):
            super().__init__()
            self.inside = nn.Sequential(*normed(inputs, width, 1), nn.ReLU(True), *normed(width, width, 3, stride),
                                        nn.ReLU(True), *normed(width, 4 * width, 1))
            is_same = stride == 1 and inputs == 4 * width
            self.beside = nn.Identity() if is_same else nn.Sequential(*normed(inputs, 4 * width, 1, stride))
            self.relu = nn.ReLU(True)

        def forward(self, x):
            return self.relu(self.inside(x) + self.beside(x))

    layers, inputs = [*normed(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if block else stride))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class Steps:
    """One model, computed in one way."""

    def __init__(self, torch, options, way, precision):
        self.torch, self.options, self.is_half = torch, options, precision == "fp16"
        self.allows_tf32 = precision == "tf32"
        layout = torch.channels_last
        self.model = made(options.model, options.classes).to(options.device, memory_format=layout)
        self.computed = torch.compile(self.model) if way == "compile" else self.model
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.scaler = torch.amp.GradScaler(options.device, enabled=self.is_half)
        shape = (options.batch, 3, options.size, options.size)
        self.images = torch.randn(shape, device=options.device).to(memory_format=layout)
        self.labels = torch.randint(0, options.classes, (options.batch,), device=options.device)
        if way == "graphed":
            torch.backends.cudnn.allow_tf32 = self.allows_tf32
            with torch.autocast(options.device, torch.float16, enabled=self.is_half, cache_enabled=False):
                self.computed = torch.cuda.make_graphed_callables(self.model, (self.images,))
        self.run(WARM_UP_STEPS)

    def run(self, steps):
        self.torch.backends.cudnn.allow_tf32 = self.allows_tf32
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            with self.torch.autocast(self.options.device, self.torch.float16, enabled=self.is_half,
                                     cache_enabled=self.computed is self.model):
                loss = self.torch.nn.functional.cross_entropy(self.computed(self.images), self.labels)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        loss.item()  # waits for the device

    def rate(self):
        begin = time.perf_counter()
        self.run(self.options.steps)
        return self.options.steps * self.options.batch / (time.perf_counter() - begin)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    for name in ("size", "batch", "classes", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def usable_torch(options):
    try:
        import torch
    except ImportError as error:
        give_up(f"{sys.executable} has no PyTorch ({error}); --python names one that has")
    if options.device == "cuda" and not torch.cuda.is_available():
        give_up(f"PyTorch {torch.__version__} of {sys.executable} sees no CUDA")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def main():
    options = parse()
    torch = usable_torch(options)
    sys.stdout = sys.stderr  # whoever prints does not answer
    say(torch=torch.__version__)
    made_before = {}
    for line in sys.stdin:
        way = tuple(line.split())
        try:
            if way not in made_before:
                made_before[way] = Steps(torch, options, *way)
            say(samples_per_s=made_before[way].rate())
        except Exception as error:  # a compiler that is missing, memory: whatever it is, it is no speed
            first_line = (str(error).splitlines() or [""])[0]
            say(why=f"PyTorch {' '.join(way)}: {type(error).__name__}: {first_line}")


if __name__ == "__main__":
    main()
