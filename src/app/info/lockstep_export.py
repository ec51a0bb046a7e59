#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exports a PyTorch model for 'lockstep train --model FILE.pt2'. It needs PyTorch 2.9 or later, and nothing else.

  python lockstep_export.py my.module:make_net --input image=f32[3,224,224] --out net.pt2
  python lockstep_export.py net.py:Net --input series=f32[T:24,8] --input meta=f32[5] --out net.pt2

MODULE:NAME is a function or class that makes the model, or the model itself; MODULE may be a file. --input names each
argument of forward() with the type (f32 or i64) and the shape of one sample. The number of samples stays free. An
extent such as T:24 is free, too; 24 is the size in this export. The file is then read again, and compared with the
model for two other numbers of samples: its outputs, the gradients of its parameters, and its outputs in evaluation.
"""

import argparse
import contextlib
import copy
import importlib
import importlib.util
import inspect
import io
import linecache
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings

import torch

ROWS = 4  # of the sample that the program is exported with
TYPES = {"f32": torch.float32, "i64": torch.int64}


class Obstacle(Exception):
    """What is in the way, and what to change."""

    def __init__(self, what, fix):
        super().__init__(f"{what}\n  fix: {fix}")


class Input:
    def __init__(self, text):
        match = re.fullmatch(r"(\w+)=(f32|i64)\[([\w:, ]*)\]", text)
        if not match:
            raise Obstacle(f"--input {text} is not of the form NAME=f32[3,224,224]",
                           "give NAME of the argument of forward(), f32 or i64, and the shape of one sample")
        self.name, self.type, self.sizes, self.free = match[1], match[2], [], {}  # free: by dimension
        for place, extent in enumerate(match[3].replace(" ", "").split(",") if match[3].strip() else [], 1):
            name, _, size = extent.rpartition(":")
            if not size.isdigit():
                raise Obstacle(f"--input {text}: '{extent}' is no extent", "write 24, or T:24 for an extent that is free")
            if name:
                self.free[place] = torch.export.Dim.DYNAMIC
            self.sizes.append(int(size))

    def sample(self, rows):
        sizes = (rows, *self.sizes)
        return torch.randn(sizes) if self.type == "f32" else torch.zeros(sizes, dtype=torch.int64)


def loaded(target):
    """What MODULE:NAME is; MODULE may be the path of a file."""
    module_name, _, name = target.rpartition(":")
    if not module_name:
        raise Obstacle(f"'{target}' names no model", "write it as my.module:make_net or path/net.py:make_net")
    sys.path.insert(0, os.getcwd())
    if module_name.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(module_name)))
        module_name = os.path.splitext(os.path.basename(module_name))[0]
    module = importlib.import_module(module_name)
    if not hasattr(module, name):
        raise Obstacle(f"{module_name} has no '{name}'", f"it has: {', '.join(n for n in vars(module) if n[0] != '_')}")
    found = getattr(module, name)
    if isinstance(found, torch.nn.Module) or not callable(found):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise Obstacle(f"{name}{inspect.signature(found)} needs arguments",
                       f"name a function that gives them: def make_net(): return {name}(...)") from error
    return found()


def check_model(net):
    wrapper = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel, torch.optim.swa_utils.AveragedModel)
    inner = "_orig_mod" if hasattr(net, "_orig_mod") else "module" if isinstance(net, wrapper) else None
    if inner:
        raise Obstacle(f"the model is within {type(net).__name__}", f"name a function that returns net.{inner}")
    if not isinstance(net, torch.nn.Module):
        raise Obstacle(f"it gives a {type(net).__name__}, no torch.nn.Module", "name a function that returns the model")
    if not net.training:
        raise Obstacle("the model is in evaluation mode: its dropout and batch norm would be switched off in training",
                       "call net.train() where it is made; what is to stay off can be switched off after that")
    for name, parameter in net.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise Obstacle(f"parameter {name} is {parameter.dtype}; those that learn must be float32",
                           "call net.float(); make a complex one of pairs, w = torch.view_as_real(w), and use "
                           "torch.view_as_complex(w) in forward()")
    off = [part for part in net.modules() if not part.training]
    for part in reversed(list(net.modules())):  # where many classes keep batch norm frozen; the outer one decides
        if part.training and type(part).train is not torch.nn.Module.train:
            part.train()
    for part in off:
        part.training = False
    off = [name for name, part in net.named_modules() if not part.training]
    if off:
        print(f"note: as the model was made, these stay in evaluation mode: {', '.join(off)}")


def in_order(net, inputs):
    """(positional, by keyword) inputs, as forward() names its arguments."""
    arguments = inspect.signature(net.forward).parameters.values()
    names = [one.name for one in arguments]
    places = [one.name for one in arguments if one.kind is not one.KEYWORD_ONLY]
    needed = [a.name for a in arguments if a.default is a.empty and a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
    given = {one.name: one for one in inputs}
    wrong = [n for n in given if n not in names]
    missing = [n for n in needed if n not in given]
    if wrong or missing or len(given) < len(inputs):
        raise Obstacle(f"forward() takes {', '.join(names)}; --input names {', '.join(one.name for one in inputs)}",
                       "give one --input for each argument, with its name")
    ordered = [given[n] for n in names if n in given]
    count = next((i for i, one in enumerate(ordered) if places[i : i + 1] != [one.name]), len(ordered))
    return ordered[:count], ordered[count:]


def prepare(net, inputs):
    """Makes what cannot be copied: lazy layers get their shapes, and weight_norm's weight, computed again by each call, is cut off."""
    modes = [(part, part.training) for part in net.modules()]
    for in_training in (False, True):  # first where running statistics see none of these numbers, then for layers of training alone
        if any(torch.nn.parameter.is_lazy(one) for one in net.parameters()):
            for part, mode in modes:
                part.training = mode and in_training
            called(net, inputs, ROWS)
            print("note: a call with random numbers gave lazy layers their shapes")
    for part, mode in modes:
        part.training = mode
    for part in net.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                setattr(part, name, value.detach())


def called(module, inputs, rows):
    torch.manual_seed(rows)  # the same sample and dropout for the model and the program
    given = [[one.sample(rows) for one in group] for group in inputs]
    return module(*given[0], **{one.name: value for one, value in zip(inputs[1], given[1])})


def check_outputs(outputs):
    if isinstance(outputs, dict) or type(outputs) in (tuple, list):
        for one in outputs.values() if isinstance(outputs, dict) else outputs:
            check_outputs(one)
    elif outputs is not None and not isinstance(outputs, torch.Tensor):
        kind = type(outputs)
        name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        raise Obstacle(f"forward() returns {'an' if name[0] in 'aeiou' else 'a'} {name}, which is no tensor",
                       "set net.config.use_cache = False" if name.startswith("transformers.")
                       else "return tensors, or a plain tuple, list or dict of them; around a package's model write a class "
                       "whose forward() does so")


def leaves(outputs):
    return [one for one in torch.utils._pytree.tree_leaves(outputs) if one is not None]


def is_users(file):
    return not file.startswith((os.path.dirname(torch.__file__) + os.sep, "<")) and file != __file__


def lines_in(text):
    return [f"{name}, line {line}" for name, line in re.findall(r'File "([^"]+)", line (\d+)', text) if is_users(name)]


def place_of(error):
    """The innermost line of the user's code that an error of torch.export names."""
    frames = [f"{f.filename}, line {f.lineno}: {f.line}" for f in traceback.extract_tb(error.__traceback__)
              if is_users(f.filename)]
    return (lines_in(str(error)) or frames or ["your forward()"])[-1]


def place_of_node(program, node):
    """Of the first node within, if it runs a part of the graph and has none itself."""
    lines = lines_in(node.meta.get("stack_trace") or "")
    parts = [one for one in node.all_input_nodes if one.op == "get_attr"]
    for part in parts:
        graph = getattr(getattr(program.graph_module, part.target, None), "graph", None)
        for inner in graph.nodes if graph else []:
            lines = lines or lines_in(inner.meta.get("stack_trace") or "")
    return f", at {lines[-1]}" if lines else ""


def first_line(error):
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def obstacle_of(error):
    """torch.export's error in plain words."""
    text, first = str(error), first_line(error)
    files = " ".join(frame.filename for frame in traceback.extract_tb(error.__traceback__))
    scripted = "torch.jit.script(net).save('net.pt') writes a file that --model net.pt trains"
    names = [type(one).__name__ for one in (error, error.__cause__, error.__context__)]
    if "DataDependent" in " ".join(names) or "data-dependent" in text or "Dynamic control flow" in text:
        place = place_of(error)
        if "batchnorm.py" in files:
            return Obstacle(f"a batch norm has momentum=None, at {place}", f"give it a number; or keep it: {scripted}")
        return Obstacle(f"what the model computes depends on values of its data, at {place}",
                        "write that place without if, loops, item() and int() over values of tensors: torch.where(), "
                        "masks, or sums over all samples; drop an assert that is there to find mistakes alone; or keep "
                        f"it: {scripted}")
    if "rnn.py" in files and "FakeTensor" in text:
        return Obstacle(f"torch.export takes no packed sequences, at {place_of(error)}",
                        "give the layer all steps, and take that of each length by gather(); or keep it: " + scripted +
                        "; there, series come as [n, 1, T, F] and lengths as f32 [n, 1, 1, 1]")
    if "specializ" in text or "inferred to be a constant" in text or "Constraints violated" in text:
        asked = re.findall(r"^\s*(\w+ = .*)$", text, re.MULTILINE)
        return Obstacle(f"forward() takes only some numbers of samples or sizes: {'; '.join(asked) or first}",
                        f"write x.flatten(1) or x.shape[0] in place of a fixed number, near {place_of(error)}; an extent "
                        "that is free only by --input NAME:SIZE can be a plain SIZE"
                        + ("; give torch.cdist compute_mode='use_mm_for_euclid_dist'" if "max=25" in text else ""))
    return Obstacle(f"torch.export cannot export the model: {type(error).__name__}: {first}\n  at {place_of(error)}",
                    "change that place, or see https://docs.pytorch.org/docs/stable/export.html")


def derivative_in(net, inputs):
    """The user's line that asks for derivatives in forward(), or None."""
    found = []

    def watch(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and (file.endswith("eager_transforms.py") or frame.f_code.co_name == "grad" and "autograd" in file):
            while not is_users(frame.f_code.co_filename):
                frame = frame.f_back
            found.append(f"{frame.f_code.co_filename}, line {frame.f_lineno}")

    sys.setprofile(watch)
    called(copy.deepcopy(net), inputs, ROWS)
    sys.setprofile(None)
    return next(iter(found), None)


def exported(net, inputs):
    batch = torch.export.Dim("batch")
    shapes = {one.name: {0: batch, **one.free} for one in inputs[0] + inputs[1]}
    sample = [[one.sample(ROWS) for one in group] for group in inputs]
    keywords = {one.name: value for one, value in zip(inputs[1], sample[1])}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # which has the whole graph if this fails
            return torch.export.export(net, tuple(sample[0]), keywords, dynamic_shapes=shapes)
    except Exception as error:
        place = derivative_in(net, inputs)
        raise obstacle_of(error) if place is None else Obstacle(
            f"torch.export keeps no derivatives that forward() takes, at {place}",
            "write out these derivatives by hand; or keep torch.autograd.grad in a model of TorchScript: "
            "torch.jit.script(net).save('net.pt')") from error


def check_graph(program):
    for node in program.graph.nodes:
        target = str(node.target)
        namespace = getattr(node.target, "namespace", "aten")
        if namespace == "higher_order" and "set_grad_enabled" not in target:
            raise Obstacle(f"the model runs a part of itself by {target}{place_of_node(program, node)}",
                           "write that place without torch.cond, loops over data, checkpointing and autocast, which "
                           "'lockstep train --precision bf16' replaces")
        if namespace not in ("aten", "higher_order"):
            raise Obstacle(f"the model calls {target}, an operator of another package{place_of_node(program, node)}",
                           "call net.set_experts_implementation('batched_mm')" if "transformers.grouped_mm" in target
                           else "write that place with operators of PyTorch itself")
    symbols = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in program.graph_signature.user_inputs:
            size = node.meta["val"].shape[0]
            if isinstance(size, int):
                raise Obstacle(f"the number of samples is fixed to {size} in input {node.name}",
                               "write x.shape[0] or x.flatten(1) in forward() in place of that number")
            bounds = symbols.get(str(size))
            if bounds is not None and bounds.lower > 2:
                print(f"note: the model takes {bounds.lower} samples or more at a time")


def equal(ones, others, scale=1.0):
    return len(ones) == len(others) and all(one.shape == other.shape and torch.allclose(
        one, other, rtol=1e-4, atol=1e-5 * scale, equal_nan=True) for one, other in zip(ones, others))


def pairs_of(net, program):
    """(name, parameter that learns, the program's): one with two names may be two in the program."""
    theirs, names = dict(program.named_parameters(remove_duplicate=False)), {}
    for name, one in net.named_parameters(remove_duplicate=False):
        names.setdefault(one, []).append(name)
    return [(tied[0], one, list({theirs[n] for n in tied if n in theirs})) for one, tied in names.items() if one.requires_grad]


def backward(module, outputs):
    """Of a fixed loss, in which each number of the outputs has its own weight."""
    reals = [torch.view_as_real(one) if one.is_complex() else one for one in outputs if one.requires_grad]
    module.zero_grad()
    if reals:
        sum((one * torch.arange(one.numel()).cos().reshape(one.shape)).sum() for one in reals).backward()


def check_gradients(pairs):
    gradients = [[sum((p.grad for p in group if p.grad is not None), start=torch.zeros_like(one)) for group in ([one], others)]
                 for _, one, others in pairs]
    scale = max([float(one.nan_to_num(0, 0, 0).abs().max()) for one, _ in gradients if one.numel()], default=0)
    for (name, *_), (one, other) in zip(pairs, gradients):
        if not equal([one], [other], scale):
            raise Obstacle(f"the program's gradient of {name} differs from the model's: torch.export keeps no backward() of a "
                           "torch.autograd.Function, and no hooks",
                           "write g(x) + (f(x) - g(x)).detach() for values of f(x) with the gradient of g(x), and no hooks")


def switched(program):
    """Switches to evaluation, as 'lockstep eval' does. Returns the states of what can be switched: {True} if all is on."""
    states = set()
    for part in program.modules():
        nodes = part.graph.nodes if isinstance(part, torch.fx.GraphModule) else []
        for node in (one for one in nodes if hasattr(one.target, "_schema")):
            names = [one.name for one in node.target._schema.arguments]
            given = {**dict(zip(names, node.args)), **node.kwargs}
            flag = next((n for n in ("training", "use_input_stats", "train", "dropout_p") if n in given), None)
            needs = next((n for n in ("running_mean", "p", "dropout", "dropout_p") if n in names), flag)
            if flag is None or given.get(needs) in (None, 0):
                continue
            states.add(given[flag] not in (False, 0))
            given[flag] = 0.0 if flag == "dropout_p" else False
            node.args = tuple(given[n] for n in names[:len(node.args)])
            node.kwargs = {n: given[n] for n in node.kwargs}
        if nodes:
            part.recompile()
    return states


def readers_of_training(net, inputs):
    """The outputs in evaluation, and the lines that read self.training. Those of PyTorch's layers and of dropout are switched."""
    lines = {}

    def read(part):
        frame = sys._getframe(1)
        file, line = frame.f_code.co_filename, frame.f_lineno
        if not file.startswith(os.path.dirname(torch.nn.modules.__file__)) and "dropout" not in linecache.getline(file, line):
            lines[f"{file}, line {line}"] = True
        return vars(part)["training"]

    torch.nn.Module.training = property(read, lambda part, mode: vars(part).update(training=mode))
    try:
        return leaves(called(net, inputs, ROWS)), list(lines)
    finally:
        del torch.nn.Module.training


def check_evaluation(net, program, inputs):
    if switched(program) == {False}:
        print("note: no dropout or batch norm is in training mode: train the file with --model-mode as-exported")
    try:
        wanted, lines = readers_of_training(net.eval(), inputs)
        is_equal = equal(wanted, leaves(called(program, inputs, ROWS)))
    except Exception:
        return  # a model for training alone
    if not is_equal:
        print("note: 'lockstep eval' and 'predict' give other outputs than net.eval(). They run what training runs, with "
              "PyTorch's dropout and batch norm switched off"
              + "".join(f"\n  where self.training is read, {line}" for line in lines)
              + "\n  for DropPath write x * F.dropout(x.new_ones(shape), p, self.training)")


def note_changes(net, later):
    """Numbers of Python, which are not seen where they change little: exp(-1e-5 * steps)."""
    for (path, part), other in zip(net.named_modules(), later.modules()):
        for name, value in vars(part).items():
            if type(value) in (bool, int, float) and vars(other).get(name) != value:
                print(f"note: forward() changes {path}.{name}, a number of Python, which is constant in the program; for one "
                      f"that changes write self.register_buffer('{name}', torch.tensor({value}))".replace(" .", " ", 1))


def compared(net, path, inputs):
    """The file's program against the model, for other numbers of samples. Gives the outputs' shapes."""
    try:
        program = torch.export.load(path).module()
    except Exception as error:
        raise Obstacle(f"PyTorch {torch.__version__} does not read what it wrote: {type(error).__name__}: {first_line(error)}",
                       "export with another PyTorch, 2.9 or later, or write what it names with other operators") from error
    pairs, shapes = pairs_of(net, program), []
    for rows in (ROWS - 1, ROWS + 3):
        wanted = leaves(called(net, inputs, rows))
        try:
            found = leaves(called(program, inputs, rows))
        except Exception as error:
            raise Obstacle(f"the program does not take {rows} samples: {first_line(error)}",
                           "write x.shape[0] or x.flatten(1) in forward() in place of a number of samples") from error
        if not equal(wanted, found):
            raise Obstacle(f"for {rows} samples, the program's output differs from the model's",
                           "the model keeps state outside of buffers, or draws from a generator of its own: do not")
        backward(net, wanted)
        backward(program, found)
        check_gradients(pairs)
        shapes.append([one.shape for one in wanted])
        with torch.no_grad():  # what begins with zeros would hide what is before it
            for _, one, others in pairs:
                one += 0.01 * torch.randn_like(one)
                for other in others:
                    other.copy_(one)
    check_evaluation(net, program, inputs)
    sizes = [[str(a) if a == b else "n" if (a, b) == (ROWS - 1, ROWS + 3) else "?" for a, b in zip(*both)]
             for both in zip(*shapes)]
    return ", ".join(f"[{', '.join(one)}]" for one in sizes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODULE:NAME", help="what makes the model")
    parser.add_argument("--input", action="append", required=True, metavar="NAME=TYPE[SHAPE]", help="an argument")
    parser.add_argument("--out", required=True, metavar="FILE.pt2", help="the new file")
    options = parser.parse_args()
    if not options.out.endswith(".pt2"):
        raise Obstacle(f"--out {options.out} does not end with .pt2", "name it so: 'lockstep train' knows it by that")
    path = os.path.realpath(options.out)
    if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise Obstacle(f"--out {options.out} cannot be written", "give a folder that exists, and that you may write to")
    given = [Input(text) for text in options.input]
    net = loaded(options.model)
    check_model(net)
    inputs = in_order(net, given)
    try:
        prepare(net, inputs)
        later = copy.deepcopy(net)
        outputs = called(later, inputs, ROWS)
    except Exception as error:
        raise Obstacle(f"the model fails on such inputs by itself: {first_line(error)}\n  at {place_of(error)}", "give "
                       "--input the shapes that forward() takes; f32 are random numbers here. i64 are 0, as in the trial "
                       "before each training: of lengths, write lengths.clamp(min=1) in forward()") from error
    note_changes(net, later)
    check_outputs(outputs)
    program = exported(copy.deepcopy(net), inputs)
    check_graph(program)
    count = sum(p.numel() for p in net.parameters() if p.requires_grad)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix=".export-") as folder:
        fresh = os.path.join(folder, os.path.basename(path))
        torch.export.save(program, fresh)
        shapes = compared(net, fresh, inputs)
        os.replace(fresh, path)
    print(f"{options.out}: {count:,} parameters learn; outputs {shapes}; equal for {ROWS - 1} and {ROWS + 3} samples")
    print(f"next: lockstep models {options.out}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # where 'head' reads only the beginning
    try:
        main()
    except Obstacle as obstacle:
        sys.exit(f"lockstep_export: {obstacle}")
    except Exception as error:
        sys.exit(f"lockstep_export: {type(error).__name__}: {first_line(error)}\n  at {place_of(error)}\n  fix: change that place")
