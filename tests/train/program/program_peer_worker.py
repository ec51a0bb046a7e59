# SPDX-License-Identifier: Apache-2.0
"""program_peer's models, exported and run by PyTorch: program_peer_worker.py PROGRAM [MODEL...].

EXPORTER is another interpreter, whose PyTorch exports them; this one's says what is right.
"""

import contextlib
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 5
STEPS = int(os.environ.get("STEPS", "0"))  # to time, besides
EXPORTER = os.environ.get("EXPORTER", "")


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Cnn(nn.Module):
    """Batch norm, dropout, a frozen parameter, a mask, a buffer that is not persistent and a constant."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.drop, self.fc = nn.Dropout(0.25), nn.Linear(8 * 13 * 13, 10)
        self.frozen = nn.Parameter(torch.ones(10), requires_grad=False)
        self.register_buffer("mask", torch.zeros(10, dtype=torch.bool))
        self.register_buffer("scale", torch.full((10,), 2.0), persistent=False)
        self.constant = torch.tensor([1.0, 2.0])

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        x = self.fc(self.drop(x)) * self.frozen * self.scale
        return x.masked_fill(self.mask, -1e9) * self.constant[1]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 16, 2, batch_first=True, dropout=0.2)
        self.gru = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        return self.fc(self.gru(self.lstm(x)[0])[0][:, -1])


class Attention(nn.Module):
    """Embeddings that are also the last layer, a causal mask, attention with dropout."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(50, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x):
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        h = self.token(x) + self.place(torch.arange(length))
        return self.head(self.layers(h, mask=mask, is_causal=True))


class Encoder(nn.Module):
    """As BERT: three embeddings, a mask of what is no word, the first token's vector."""

    def __init__(self):
        super().__init__()
        self.token, self.place, self.segment = nn.Embedding(60, 32), nn.Embedding(16, 32), nn.Embedding(2, 32)
        self.norm, self.drop = nn.LayerNorm(32), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool, self.fc = nn.Linear(32, 32), nn.Linear(32, 3)
        self.register_buffer("places", torch.arange(16))

    def forward(self, tokens):
        places = self.places[: tokens.shape[1]]
        segments = (tokens.eq(1).cumsum(1) > 0).long()
        h = self.token(tokens) + self.place(places) + self.segment(segments)
        h = self.layers(self.drop(self.norm(h)), src_key_padding_mask=tokens.eq(0))
        return self.fc(torch.tanh(self.pool(h[:, 0])))


class Fourier(nn.Module):
    """A Fourier neural operator in one dimension; its complex weights are pairs of real ones."""

    def __init__(self):
        super().__init__()
        self.lift, self.last = nn.Conv1d(2, 16, 1), nn.Conv1d(16, 1, 1)
        self.local = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(2))
        self.modes = nn.Parameter(0.1 * torch.randn(2, 16, 16, 5, 2))

    def forward(self, x):
        h = self.lift(x)
        for local, modes in zip(self.local, self.modes):
            low = torch.fft.rfft(h)[:, :, :5]
            low = torch.einsum("bix,iox->box", low, torch.view_as_complex(modes))
            h = F.gelu(local(h) + torch.fft.irfft(low, n=h.shape[-1]))
        return self.last(h)


class Gpt(nn.Module):
    """Causal attention by F.scaled_dot_product_attention, and one tensor for the first and last layer."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(50, 32), nn.Parameter(0.02 * torch.randn(16, 32))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(32, 96) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.mlp = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        batch, length = tokens.shape
        h = F.dropout(self.token(tokens) + self.place[:length], 0.1, self.training)
        for i in range(2):
            parts = self.qkv[i](self.norms[2 * i](h)).reshape(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(*parts, dropout_p=0.1 if self.training else 0, is_causal=True)
            h = h + self.out[i](mixed.transpose(1, 2).reshape(batch, length, 32))
            h = h + self.mlp[i](self.norms[2 * i + 1](h))
        return self.head(self.norms[4](h))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 + 5, 4)

    def forward(self, image, meta):
        return self.fc(torch.cat([F.relu(self.conv(image)).mean((2, 3)), meta], 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)
        self.norm = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)

    def forward(self, x):
        a = F.relu(self.norm(self.down(x)))
        return self.last(torch.cat([a, self.up(F.relu(self.deep(F.max_pool2d(a, 2))))], 1))


class Without(nn.Module):
    """A part without gradients."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        with torch.no_grad():
            y = self.fc(x).mean(1, keepdim=True) * 2
        return self.fc(x) + y


def images(channels, side):
    return (torch.randn(ROWS + 1, channels, side, side),)


CASES = {
    "mlp": lambda: (Mlp(), (torch.randn(ROWS + 1, 12),)),
    "cnn": lambda: (Cnn(), images(1, 28)),
    "cnn_evaluated": lambda: (Cnn().eval(), images(1, 28)),
    "recurrent": lambda: (Recurrent(), (torch.randn(ROWS + 1, 10, 6),)),
    "attention": lambda: (Attention(), (torch.randint(0, 50, (ROWS + 1, 12)),)),
    "encoder": lambda: (Encoder(), (torch.randint(0, 60, (ROWS + 1, 12)),)),
    "fourier": lambda: (Fourier(), (torch.randn(ROWS + 1, 2, 32),)),
    "gpt": lambda: (Gpt(), (torch.randint(0, 50, (ROWS + 1, 12)),)),
    "two_inputs": lambda: (TwoInputs(), (*images(3, 8), torch.randn(ROWS + 1, 5))),
    "unet": lambda: (UNet(), images(3, 16)),
    "without": lambda: (Without(), (torch.randn(ROWS + 1, 6),)),
}


def torchvision_cases():
    try:
        import torchvision.models as zoo
    except ImportError:
        return {}
    names = ["resnet18", "resnet50", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "densenet121"]
    names += ["convnext_tiny", "swin_t"]
    cases = {
        name: lambda name=name: (
            getattr(zoo, name)(num_classes=10),
            images(3, 64 if name in ("convnext_tiny", "swin_t") else 32),
        )
        for name in names
    }
    cases["vit_b_16"] = lambda: (zoo.vit_b_16(image_size=32, num_classes=10), images(3, 32))
    return cases


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def step(module, inputs):
    module(*inputs).float().square().mean().backward()


def tied_names(module):
    """For each parameter all of its names."""
    groups = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return {name: names for names in groups.values() for name in names}


def wanted_of(exported, inputs, lines, tied):
    """The bytes that Python has for each 'gradient NAME' and 'buffer NAME'."""
    module = exported.module()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    torch.manual_seed(1)
    step(module, inputs)
    buffers = dict(module.named_buffers())
    found = []
    for line in lines:
        kind, name = line.split()
        if kind == "gradient":
            # A file that is loaded has tied weights as two tensors of the same values.
            twins = {id(parameters[one]): parameters[one] for one in tied[name]}.values()
            grads = [p.grad for p in twins if p.grad is not None]
            grad = sum(grads[1:], grads[0]) if grads else None
            found.append(raw(torch.zeros_like(parameters[name]) if grad is None else grad))
        else:
            found.append(raw(buffers[name]))
    learning = {tied[name][0] for name, p in parameters.items() if p.requires_grad}
    return b"".join(found), len(learning)


def eager_ms(module, inputs):
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step(module, inputs)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times) if times else 0


def export(case, decomposed):
    """Writes net.pt2 and its inputs."""
    torch.manual_seed(0)
    module, sample = case()
    batch = torch.export.Dim("batch", min=2, max=4096)
    exported = torch.export.export(module, sample, dynamic_shapes=({0: batch},) * len(sample))
    if decomposed:
        exported = exported.run_decompositions()
    torch.export.save(exported, "net.pt2")
    torch.save([one[:ROWS].contiguous() for one in sample], "inputs.pth")


def compared(program, name, case, decomposed):
    if EXPORTER:
        words = [EXPORTER, __file__, "--export", name, str(int(decomposed))]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    else:
        export(case, decomposed)
    exported = torch.export.load("net.pt2")
    inputs = torch.load("inputs.pth")
    words = []
    for i, one in enumerate(inputs):
        with open(f"input{i}", "wb") as file:
            file.write(raw(one))
        kind = "f32" if one.is_floating_point() else "i64"
        words.append(f"input{i}:{kind}:{','.join(map(str, one.shape))}")
    mode = "train" if case()[0].training else "as-exported"
    ours = subprocess.run([program, "net.pt2", "out", str(STEPS), mode, *words], capture_output=True, text=True)
    if ours.returncode:
        print(f"{name}: {ours.stderr}")
        return False
    *lines, ms = ours.stdout.splitlines()
    wanted, learning = wanted_of(exported, inputs, lines, tied_names(case()[0]))
    with open("out", "rb") as file:
        equal = file.read() == wanted
    all_there = sum(line.startswith("gradient") for line in lines) == learning
    times = f", {ms} (Python eager {eager_ms(exported.module(), inputs):.3f})" if STEPS else ""
    print(f"{name}: {len(lines)} tensors {'equal' if equal and all_there else 'DIFFER'}{times}", flush=True)
    return equal and all_there


def main():
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    program, *names = sys.argv[1:]
    every = {**CASES, **torchvision_cases()}
    if program == "--export":
        export(every[names[0]], names[1] == "1")
        return 0
    program = os.path.abspath(program)
    every = CASES if EXPORTER else every
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        results = [compared(program, name, every[name], False) for name in names or every]
        if not names:
            results += [compared(program, f"{n} decomposed", CASES[n], True) for n in ("mlp", "unet")]
    print(f"program_peer: {sum(results)} of {len(results)} have Python's bits", flush=True)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
