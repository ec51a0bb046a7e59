// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <algorithm>
#include <map>
#include <ranges>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string text_in(const Json& object, const char* key) {
    const Json text = object.value(key, Json(""));
    return text.is_string() ? text.get<std::string>() : "";
}

// A setting that earlier versions had. It decided bits wherever it was not the default.
Json without_wire(const fs::path& run, Json deciding) {
    if (!deciding.is_object()) return deciding;
    const std::string wire = text_in(deciding, "wire");
    check(wire.empty() || wire == "f32", [&] {
        return Error("E306",
                     fmt::format("run '{}' was made with --wire {}", run.string(), wire),
                     "this version sends gradients as fp32 only",
                     fmt::format("begin another run with its weights: --from {}, and another --run",
                                 shell_word(run.string())));
    });
    deciding.erase("wire");
    deciding.erase("powersgd-rank");
    return deciding;
}

Error other_bits(const fs::path& run, const BitContract& then, const BitContract& now) {
    return Error("E710",
                 fmt::format("run '{}' cannot continue here with the same bits", run.string()),
                 fmt::format("a step before the run gives {} on {}, and gave {} on {}",
                             now.canary.substr(0, 8),
                             now.processor,
                             then.canary.substr(0, 8),
                             then.processor),
                 "use the same kind of nodes as before (sbatch --constraint), or "
                 "--accept-other-bits: the model will be as good, but its bits will differ");
}

std::vector<CheckpointInfo> checkpoints_in(const fs::path& run) {
    check(fs::exists(run), [&] {
        return Error(
            "E201", fmt::format("'{}' does not exist", run.string()), "", "give a run directory");
    });
    auto found = list_checkpoints(RunPaths{run}.checkpoints());
    check(!found.empty(), [&] {
        return Error("E301",
                     fmt::format("no checkpoint in '{}'", run.string()),
                     "the run has not written one yet, or this is no run directory",
                     "give the directory that was given to 'train --run'");
    });
    return found;
}

std::int64_t best_step(const fs::path& run) {
    const auto newest = newest_checkpoint_state(RunPaths{run}.checkpoints());
    check(newest && !newest->best.metric.empty(), [&] {
        return Error("E301",
                     fmt::format("run '{}' has no best checkpoint", run.string()),
                     "it was trained without --keep-best, --keep best=N and --early-stop, or not "
                     "evaluated yet",
                     "give a step ('lockstep ckpt ls RUN' lists them), or newest");
    });
    return newest->best.step;
}

constexpr std::string_view of_torch_save =
    "import sys, torch; from safetensors.torch import save_file; "
    "d = torch.load(sys.argv[1], map_location='cpu'); "
    "d = next((d[k] for k in ('state_dict', 'model_state_dict', 'model') if k in d), d); "
    "save_file({k: v.clone().contiguous() for k, v in d.items()}, sys.argv[2])";
constexpr std::string_view of_torch_script =
    "import sys, torch; from safetensors.torch import save_file; "
    "d = torch.jit.load(sys.argv[1], map_location='cpu').state_dict(); "
    "save_file({k: v.clone().contiguous() for k, v in d.items()}, sys.argv[2])";
constexpr std::string_view of_numpy =
    "import sys, numpy; from safetensors.numpy import save_file; d = numpy.load(sys.argv[1]); "
    "save_file({k: numpy.array(d[k], order='C') for k in d.files}, sys.argv[2])";

// The format: 8 bytes of the header's length, the header as JSON, the tensors.
constexpr std::string_view renaming_program =
    "import json, struct, sys; d = open(sys.argv[1], 'rb').read(); "
    "n = struct.unpack('<Q', d[:8])[0]; "
    "h = {RENAMED: v for k, v in json.loads(d[8:8+n]).items()}; t = json.dumps(h).encode(); "
    "t += b' ' * (-len(t) % 8); "
    "open(sys.argv[2], 'wb').write(struct.pack('<Q', len(t)) + t + d[8+n:])";
constexpr std::string_view renaming_program_of_npz =
    "import sys, zipfile; a = zipfile.ZipFile(sys.argv[1]); "
    "b = zipfile.ZipFile(sys.argv[2], 'w'); "
    "[b.writestr(RENAMED, a.read(k)) for k in a.namelist()]; b.close()";
constexpr std::string_view renaming_program_of_index =
    "import json, os, sys; from safetensors.torch import load_file, save_file; "
    "names = json.load(open(sys.argv[1]))['weight_map'].values(); d = {}; "
    "[d.update(load_file(os.path.join(os.path.dirname(sys.argv[1]), n))) for n in set(names)]; "
    "save_file({RENAMED: v for k, v in d.items()}, sys.argv[2])";

std::string python_line(std::string_view program, const fs::path& path, const fs::path& made) {
    return fmt::format(
        "python3 -c \"{}\" {} {}", program, shell_word(path.string()), shell_word(made.string()));
}

// "a.safetensors" for a.pth, a.safetensors.gz and a.safetensors.index.json; never `path` itself.
fs::path made_of(const fs::path& path) {
    fs::path stem = path.parent_path() / path.stem();
    if (stem.extension() == ".index") stem.replace_extension();
    const fs::path made =
        stem.extension() == ".safetensors" ? stem : fs::path(stem.string() + ".safetensors");
    return made == path ? fs::path(stem.string() + ".new.safetensors") : made;
}

bool is_plain(std::string_view prefix) {
    return std::ranges::all_of(prefix, [](unsigned char byte) {
        return std::isalnum(byte) != 0 || byte == '_' || byte == '.' || byte == '-';
    });
}

// The prefix that most of `longer` have before a name of `shorter`; "": fewer than half have one.
std::string prefix_of(std::span<const std::string> longer, std::span<const std::string> shorter) {
    std::map<std::string, std::size_t> found;
    for (const std::string& name : longer)
        for (std::size_t at = name.find('.'); at != name.npos; at = name.find('.', at + 1))
            if (std::ranges::find(shorter, std::string_view(name).substr(at + 1)) != shorter.end())
                ++found[name.substr(0, at + 1)];
    if (found.empty()) return "";
    const auto& [prefix, count] =
        *std::ranges::max_element(found, {}, [](const auto& entry) { return entry.second; });
    return 2 * count >= shorter.size() && is_plain(prefix) ? prefix : "";
}

}  // namespace

// Damaged ones are passed over when the run is loaded, and said there.
std::optional<CheckpointState> newest_checkpoint_state(const fs::path& root) {
    for (const CheckpointInfo& info : list_checkpoints(root) | std::views::reverse) {
        try {
            return read_checkpoint_state(info.path);
        } catch (const Error&) {
            continue;
        }
    }
    return std::nullopt;
}

std::vector<BitContract> recorded_contracts(const fs::path& run) {
    std::vector<BitContract> found;
    const RunPaths paths{run};
    if (fs::exists(status_of(paths.record()))) {
        const RunRecord record = read_run_record(run);
        found.push_back({without_wire(run, record.deciding),
                         text_in(record.contract, "canary"),
                         text_in(record.contract, "processor")});
    }
    if (auto newest = newest_checkpoint_state(paths.checkpoints())) {
        BitContract& contract = newest->contract;
        contract.deciding = without_wire(run, std::move(contract.deciding));
        found.push_back(std::move(contract));
    }
    return found;
}

CheckpointInfo chosen_checkpoint(const fs::path& run, const std::string& choice) {
    const auto number = parse_integer(choice);
    check(choice == "newest" || choice == "best" || (number && *number >= 0), [&] {
        return Error(
            "E103",
            fmt::format("'{}' is no checkpoint of a run", printable(choice)),
            "it must be a step, best or newest",
            fmt::format("'lockstep ckpt ls {}' lists the steps", shell_word(run.string())));
    });
    const std::vector<CheckpointInfo> found = checkpoints_in(run);
    if (choice == "newest") return found.back();
    const std::int64_t step = number ? *number : best_step(run);
    const auto info = std::ranges::find(found, step, &CheckpointInfo::step);
    check(info != found.end(), [&] {
        return Error("E301",
                     fmt::format("there is no checkpoint of step {}", step),
                     fmt::format("the newest is of step {}", found.back().step),
                     "'lockstep ckpt ls RUN' lists them");
    });
    return *info;
}

Json recorded_settings(const std::vector<BitContract>& recorded) {
    for (const BitContract& contract : recorded)
        if (!contract.deciding.empty()) return contract.deciding;
    return Json::object();
}

std::optional<std::string> check_recorded(const fs::path& run,
                                          const std::vector<BitContract>& recorded,
                                          const BitContract& now,
                                          const Json& origins,
                                          OtherBits other) {
    const BitContract* last = nullptr;
    for (const BitContract& contract : recorded) {
        if (!contract.deciding.empty())
            check_same_deciding(run, contract.deciding, now.deciding, origins);
        if (!contract.canary.empty()) last = &contract;
    }
    if (!last || last->canary == now.canary) return std::nullopt;
    const Error error = other_bits(run, *last, now);
    if (other == OtherBits::refuse) throw error;
    return fmt::format("{}: {}; accepted", error.what(), error.why());
}

std::string way_to_safetensors(std::string_view start, const fs::path& path) {
    const fs::path made = made_of(path);
    const std::string name = shell_word(path.string());
    switch (file_kind(start)) {
        case FileKind::torch_save:
        case FileKind::pickle:
            return "convert it: " + python_line(of_torch_save, path, made);
        case FileKind::torch_script:
            return "convert it: " + python_line(of_torch_script, path, made);
        case FileKind::numpy_archive:
            return "convert it: " + python_line(of_numpy, path, made);
        case FileKind::lfs_pointer:
            return "fetch what it stands for: git lfs pull --include " + name;
        case FileKind::gzip:
            return fmt::format("expand it: gunzip <{} >{}", name, shell_word(made.string()));
        case FileKind::zstd:
            return fmt::format("expand it: unzstd <{} >{}", name, shell_word(made.string()));
        case FileKind::zip:
            return "unpack it: unzip " + name;
        case FileKind::web_page:
            return "download the file itself: the address that was taken shows a page about it";
        default:
            return "";
    }
}

std::string export_command(const fs::path& path) {
    fs::path run = path;
    while (run != run.parent_path() && !fs::exists(status_of(run / "run.json")))
        run = run.parent_path();
    return fmt::format("lockstep export {} --out weights.safetensors",
                       run == run.parent_path() ? "RUN" : shell_word(run.string()));
}

void check_is_weights_file(const fs::path& path) {
    check(!fs::is_directory(status_of(path)), [&] {
        return Error("E206",
                     fmt::format("'{}' is a folder, not a file of weights", path.string()),
                     "a run keeps its weights in pieces, one for each rank that saved them",
                     "write one file with '" + export_command(path) + "', and give that");
    });
}

Renaming renaming_between(std::span<const std::string> missing,
                          std::span<const std::string> unexpected) {
    std::string of_file = prefix_of(unexpected, missing);
    if (!of_file.empty()) return {.prefix = std::move(of_file)};
    return {.prefix = prefix_of(missing, unexpected), .is_in_the_file = false};
}

std::string rename_command(const Renaming& renaming, const fs::path& path) {
    const std::string renamed =
        renaming.is_in_the_file
            ? fmt::format("k.removeprefix('{}')", renaming.prefix)
            : fmt::format("k if k == '__metadata__' else '{}' + k", renaming.prefix);
    const bool is_npz = path.extension() == ".npz";
    std::string program(is_npz                        ? renaming_program_of_npz
                        : path.extension() == ".json" ? renaming_program_of_index
                                                      : renaming_program);
    program.replace(program.find("RENAMED"), 7, renamed);
    return python_line(
        program, path, is_npz ? fs::path(path).replace_extension("new.npz") : made_of(path));
}

}  // namespace lockstep
