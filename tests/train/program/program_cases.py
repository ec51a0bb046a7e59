# SPDX-License-Identifier: Apache-2.0
"""Models that PyTorch exports, each with inputs of rows() samples: what program_peer and soak/programs train."""

import importlib.util

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 6
TORCHVISION = ("resnet18", "resnet50", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "densenet121",
               "convnext_tiny", "swin_t", "vit_b_16")
TIMM = ("convnext_atto", "edgenext_xx_small", "ghostnet_050", "mambaout_femto", "mobilevit_xxs", "pvt_v2_b0", "regnetx_002",
        "starnet_s1", "test_nfnet", "test_vit")
TRANSFORMERS = ("gemma3_text", "gpt2", "gpt_neox", "llama", "mamba", "mixtral", "olmo2", "opt", "phi3", "qwen3")


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
        return self.last(h).flatten(1)


class Product(nn.Module):
    """As GPT-2's: the weight is stored transposed."""

    def __init__(self, inside, outside):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.02 * torch.randn(inside, outside)), nn.Parameter(torch.zeros(outside))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Gpt(nn.Module):
    """The built-in gpt, layer by layer: one tensor is the first and the last layer's."""

    def __init__(self, vocabulary=50, context=16, layers=2, heads=4, width=32):
        super().__init__()
        self.heads = heads
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.mix = nn.ModuleList(Product(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(Product(width, width) for _ in range(layers))
        self.up = nn.ModuleList(Product(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(Product(4 * width, width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        batch, length = tokens.shape
        h = F.dropout(self.token(tokens) + self.place(torch.arange(length)), 0.1, self.training)
        for i, mix in enumerate(self.mix):
            parts = mix(self.norms[2 * i](h)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*parts, dropout_p=0.1 if self.training else 0, is_causal=True)
            h = h + F.dropout(self.out[i](seen.transpose(1, 2).reshape(h.shape)), 0.1, self.training)
            wide = F.gelu(self.up[i](self.norms[2 * i + 1](h)), approximate="tanh")
            h = h + F.dropout(self.down[i](wide), 0.1, self.training)
        return self.head(self.norms[-1](h))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 + 5, 4)

    def forward(self, image, meta):
        x = torch.cat([F.relu(self.conv(image)).mean((2, 3)), meta], 1)
        return {"parts": x, "scores": self.fc(x)}


class Vae(nn.Module):
    """With a loss of its own, which draws random numbers."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, image):
        x = image.flatten(1)
        mean, log = self.encode(x).chunk(2, 1)
        found = self.decode(mean + torch.randn_like(mean) * torch.exp(0.5 * log))
        kl = -0.5 * (1 + log - mean.pow(2) - log.exp()).sum(1)
        return {"loss": F.mse_loss(found, x, reduction="none").sum(1) + kl, "kl": kl}


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
    return (torch.randn(ROWS, channels, side, side),)


CASES = {
    "mlp": lambda: (Mlp(), (torch.randn(ROWS, 12),)),
    "cnn": lambda: (Cnn(), images(1, 28)),
    "cnn_evaluated": lambda: (Cnn().eval(), images(1, 28)),
    "recurrent": lambda: (Recurrent(), (torch.randn(ROWS, 10, 6),)),
    "attention": lambda: (Attention(), (torch.randint(0, 50, (ROWS, 12)),)),
    "encoder": lambda: (Encoder(), (torch.randint(0, 60, (ROWS, 12)),)),
    "fourier": lambda: (Fourier(), (torch.randn(ROWS, 2, 32),)),
    "gpt": lambda: (Gpt(), (torch.randint(0, 50, (ROWS, 12)),)),
    "two_inputs": lambda: (TwoInputs(), (*images(3, 8), torch.randn(ROWS, 5))),
    "unet": lambda: (UNet(), images(3, 16)),
    "vae": lambda: (Vae(), images(1, 8)),
    "without": lambda: (Without(), (torch.randn(ROWS, 6),)),
}


def torchvision_case(name):
    import torchvision.models as zoo

    more = {"image_size": 32} if name == "vit_b_16" else {}
    return getattr(zoo, name)(num_classes=10, **more), images(3, 64 if name in ("convnext_tiny", "swin_t") else 32)


def timm_case(name):
    import timm

    try:
        net = timm.create_model(name, num_classes=10, img_size=64)
    except TypeError:  # of any size
        net = timm.create_model(name, num_classes=10)
    return net, images(3, 64)


def transformers_case(name):
    """A small language model."""
    import transformers

    wanted = {"hidden_size": 32, "n_embd": 32, "d_model": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2,
              "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
              "intermediate_size": 64, "vocab_size": 50, "state_size": 8, "num_local_experts": 4, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(name)
    config = type(config)(**{key: value for key, value in wanted.items() if hasattr(config, key)})
    net = transformers.AutoModelForCausalLM.from_config(config)
    net.config.use_cache = False
    if getattr(config, "num_local_experts", None):
        net.set_experts_implementation("batched_mm")

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, tokens):
            return self.net(input_ids=tokens).logits

    return Logits(), (torch.randint(3, 50, (ROWS, 12)),)


def packages_cases():
    """Of packages that many use."""
    every = {"torchvision": ("", torchvision_case, TORCHVISION), "timm": ("timm-", timm_case, TIMM),
             "transformers": ("transformers-", transformers_case, TRANSFORMERS)}
    return {
        prefix + name: lambda make=make, name=name: make(name)
        for package, (prefix, make, names) in every.items()
        if importlib.util.find_spec(package)
        for name in names
    }


def every_case():
    return {**CASES, **packages_cases()}
