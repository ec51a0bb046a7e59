# SPDX-License-Identifier: Apache-2.0
"""Compares operators on 1 and more threads: prints {operator: [what differs]} as JSON. See threads."""
import json

import torch
from torch import nn

torch.use_deterministic_algorithms(True)


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def images(*shape):
    return noise(*shape).to(memory_format=torch.channels_last)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.qkv(x).view(8, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class CrossEntropy(nn.Module):
    def forward(self, x):
        return nn.functional.cross_entropy(x, torch.arange(len(x)) % x.shape[1])


class MeanOfAll(nn.Module):
    def forward(self, x):
        return x.square().mean()


class Added(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape))

    def forward(self, x):
        return x + self.weight


# The first word of a name, to the colon, is what docs/numerics.md names.
OPERATORS = {
    "linear": (lambda: nn.Linear(512, 257), noise(64, 512)),
    "linear: of sequences": (lambda: nn.Linear(256, 1024), noise(8, 128, 256)),
    "convolution: 3x3": (lambda: nn.Conv2d(32, 64, 3, padding=1), images(16, 32, 28, 28)),
    "convolution: 3x3 stride 2": (lambda: nn.Conv2d(64, 128, 3, 2, 1), images(16, 64, 14, 14)),
    "convolution: 1x1": (lambda: nn.Conv2d(64, 256, 1), images(16, 64, 14, 14)),
    "convolution: 7x7 stride 2": (lambda: nn.Conv2d(3, 64, 7, 2, 3), images(8, 3, 64, 64)),
    "convolution: by channel": (lambda: nn.Conv2d(96, 96, 3, padding=1, groups=96), images(16, 96, 28, 28)),
    "convolution: transposed": (lambda: nn.ConvTranspose2d(64, 32, 2, 2), images(8, 64, 14, 14)),
    "batch norm: of images": (lambda: nn.BatchNorm2d(64), images(16, 64, 28, 28)),
    "batch norm: channels first": (lambda: nn.BatchNorm2d(64), noise(16, 64, 28, 28)),
    "batch norm: of features": (lambda: nn.BatchNorm1d(512), noise(64, 512)),
    "layer norm": (lambda: nn.LayerNorm(256), noise(8, 128, 256)),
    "group norm": (lambda: nn.GroupNorm(8, 64), images(16, 64, 28, 28)),
    "embedding": (lambda: nn.Embedding(256, 128), (torch.arange(2048) * 7 % 256).reshape(8, 256)),
    "attention": (Attention, noise(8, 128, 64)),
    "max pooling": (lambda: nn.MaxPool2d(2), images(16, 8, 56, 56)),
    "average pooling": (lambda: nn.AdaptiveAvgPool2d(1), images(16, 8, 56, 56)),
    "relu": (nn.ReLU, images(16, 8, 56, 56)),
    "gelu": (nn.GELU, noise(4096, 33)),
    "silu": (nn.SiLU, images(16, 8, 56, 56)),
    "sigmoid": (nn.Sigmoid, images(16, 8, 56, 56)),
    "softmax": (lambda: nn.Softmax(-1), noise(512, 129)),
    "dropout": (lambda: nn.Dropout(0.5), noise(4096, 33)),
    "cross entropy": (CrossEntropy, noise(4096, 256)),
    "mean of all": (MeanOfAll, noise(65536, 64)),
    "added parameter: of a position": (lambda: Added(1, 128, 64), noise(64, 128, 64)),
    "added parameter: of a channel": (lambda: Added(64), noise(64, 128, 64)),
}


def results(make, given, threads):
    """The bytes of the output and of all gradients, by name."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    module = make()
    given = given.clone().requires_grad_(given.is_floating_point())
    output = module(given)
    torch.manual_seed(2)
    output.backward(torch.sin(torch.arange(float(output.numel()))).reshape(output.shape))
    found = {"output": output, "input's gradient": given.grad}
    found |= {f"{name}'s gradient": parameter.grad for name, parameter in module.named_parameters()}
    return {name: value.detach().numpy().tobytes() for name, value in found.items() if value is not None}


def differing(make, given):
    one = results(make, given, 1)
    return sorted({name for threads in (2, 3, 4) for name, value in results(make, given, threads).items() if value != one[name]})


print(json.dumps({name: differing(*operator) for name, operator in OPERATORS.items()}))
