# SPDX-License-Identifier: Apache-2.0
"""What models_peer runs in the peers' environment: models_peer_worker.py PROGRAM [MODEL...]."""

import collections
import pathlib
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

TOLERANCE = 1e-4
# Channels, height, width, classes; samples.
CASES = {
    "resnet18": [(3, 224, 224, 1000, 2), (1, 97, 65, 10, 3)],
    "resnet34": [(3, 224, 224, 1000, 2)],
    "resnet50": [(3, 224, 224, 1000, 2), (1, 33, 40, 10, 3)],
    "densenet121": [(3, 224, 224, 1000, 2), (1, 64, 48, 10, 3)],
    "efficientnet_b0": [(3, 224, 224, 1000, 2), (1, 28, 28, 10, 3)],
    "efficientnet_b7": [(3, 224, 224, 1000, 2)],
    "vit_b_16": [(3, 224, 224, 1000, 2), (1, 32, 32, 10, 3)],
    "unet": [(3, 37, 50, 5, 2)],
    "gpt": [(1, 1, 16, 97, 3)],
}


def named(**layers):
    return nn.Sequential(collections.OrderedDict(layers))


def two_convs(channels, out):
    layers = []
    for width in (channels, out):
        layers += [nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
    return named(double_conv=nn.Sequential(*layers))


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
        self.conv = two_convs(channels, channels // 2)

    def forward(self, below, beside):
        x = self.up(below)
        rows, columns = (beside.shape[i] - x.shape[i] for i in (2, 3))
        x = nn.functional.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        return self.conv(torch.cat([beside, x], 1))


class Unet(nn.Module):
    def __init__(self, channels, classes, width):
        super().__init__()
        self.inc = two_convs(channels, width)
        for i in range(4):
            down = nn.Sequential(nn.MaxPool2d(2), two_convs(width << i, width << (i + 1)))
            setattr(self, f"down{i + 1}", named(maxpool_conv=down))
            setattr(self, f"up{i + 1}", Up(width << (4 - i)))
        self.outc = named(conv=nn.Conv2d(width, classes, 1))

    def forward(self, x):
        levels = [self.inc(x)]
        for i in range(4):
            levels.append(getattr(self, f"down{i + 1}")(levels[-1]))
        x = levels[-1]
        for i in range(4):
            x = getattr(self, f"up{i + 1}")(x, levels[3 - i])
        return self.outc(x)


class Gpt(nn.Module):
    """GPT-2 by the names of its published file, which has no prefix and no second copy of wte."""

    def __init__(self):
        super().__init__()
        shape = {"vocab_size": 97, "n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 4}
        self.whole = GPT2LMHeadModel(GPT2Config(**shape, bos_token_id=None, eos_token_id=None))

    def forward(self, tokens):
        return self.whole(tokens.long()).logits

    def state_dict(self):
        return self.whole.transformer.state_dict()

    def load_state_dict(self, weights, strict):
        return self.whole.transformer.load_state_dict(weights, strict=strict)

    def named_parameters(self):
        return self.whole.transformer.named_parameters()


def peer(name, channels, height, width, classes):
    if name == "unet":
        return Unet(channels, classes, 8)
    if name == "gpt":
        return Gpt()
    more = {"image_size": height} if name.startswith("vit") else {}
    model = getattr(torchvision.models, name)(num_classes=classes, **more)
    if channels == 3:
        return model
    for place, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            other = nn.Conv2d(channels, module.out_channels, module.kernel_size, module.stride, module.padding,
                              bias=module.bias is not None)
            model.set_submodule(place, other)
            return model


def shake(model, samples):
    """Values that nothing hides behind: no zeros and ones, statistics of activations but for a tenth."""
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            if parameter.numel() < 2 or parameter.std() < 1e-3:
                parameter.add_(torch.randn_like(parameter) * 0.05)
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0
        model.train()
        model(samples)
        model.eval()
        for norm in norms:
            norm.running_mean.mul_(torch.empty_like(norm.running_mean).uniform_(0.9, 1.1))
            norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.9, 1.1))


def weights_of(model):
    return {name: tensor.contiguous() for name, tensor in model.state_dict().items() if tensor.is_floating_point()}


def ask(program, folder, weights, inputs, *asked):
    """Lockstep's answer: its logits by our weights, its first weights, its logits by those."""
    (folder / "answer").unlink(missing_ok=True)
    save_file(weights, folder / "weights.safetensors")
    save_file({"input": inputs}, folder / "input.safetensors")
    run = subprocess.run([program, folder, *map(str, asked)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"models_peer: {asked[0]} was not answered\n{run.stdout}{run.stderr}")
    answer = load_file(folder / "answer")
    own = {name.removeprefix("own."): tensor for name, tensor in answer.items() if name.startswith("own.")}
    return answer["logits"], own, answer["own logits"]


def unlike(name, fresh, own):
    """Of a parameter's first values: why they are not distributed as the peer's, or nothing."""
    theirs, ours = fresh.double(), own.double()
    if theirs.numel() < 2 or theirs.std() == 0:
        return None if torch.equal(theirs, ours) else f"{name} is not constant"
    room = 6 / theirs.numel() ** 0.5
    if abs(ours.std() / theirs.std() - 1) > room:
        return f"{name} deviates by {ours.std():.4g} instead of {theirs.std():.4g}"
    flat = [(values - values.mean()).abs().mean() / values.std() for values in (theirs, ours)]
    return None if abs(flat[0] - flat[1]) < room else f"{name} has another distribution"


def compare(program, folder, name, channels, height, width, classes, samples):
    """What is wrong, in words."""
    torch.manual_seed(7)
    model = peer(name, channels, height, width, classes)
    fresh = {key: value.detach().clone() for key, value in model.named_parameters()}
    size = (samples, width) if name == "gpt" else (samples, channels, height, width)
    inputs = torch.randint(0, 97, size).float() if name == "gpt" else torch.randn(size)
    shake(model, inputs)
    logits, own, own_logits = ask(program, folder, weights_of(model), inputs, name, channels, height, width, classes)
    with torch.no_grad():
        expected = model(inputs)
        model.load_state_dict({**model.state_dict(), **own}, strict=True)
        expected_own = model(inputs)
    there = (logits - expected).abs().max().item()
    back = (own_logits - expected_own).abs().max().item()
    wrong = []
    if name != "unet" and channels == 3 or name == "gpt":  # torchvision's own first weights
        wrong = [text for key, value in fresh.items() if (text := unlike(key, value, own[key]))]
    print(f"{name} {channels}x{height}x{width}: logits differ by {there:.1e} of {expected.std():.1e} there and by"
          f" {back:.1e} of {expected_own.std():.1e} back", flush=True)
    if set(own) != set(weights_of(model)):
        wrong.append(f"names differ: {sorted(set(own) ^ set(weights_of(model)))[:4]}")
    if expected.std() < 0.05:
        wrong.append("logits are too much alike to compare")
    # First statistics, zeros and ones, let activations grow or fade from block to block.
    room = TOLERANCE * expected_own.std().item()
    return wrong + [f"logits differ by {most:.1e}" for most, allowed in ((there, TOLERANCE), (back, room))
                    if not most <= allowed]


def main():
    program, *names = sys.argv[1:]
    failed = False
    with tempfile.TemporaryDirectory(prefix="lockstep-models-") as folder:
        for name in names or CASES:
            for case in CASES[name]:
                for text in compare(program, pathlib.Path(folder), name, *case):
                    print(f"{name}: {text}")
                    failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
