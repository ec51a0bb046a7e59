// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

enum class ExportFormat { safetensors, npz, program, torchscript };

struct ExportArguments {
    fs::path out;
    std::string step = "newest";
    bool takes_all = false, takes_average = false;
    ExportFormat format = ExportFormat::safetensors;

    ExportedTensors tensors() const {
        if (takes_all) return ExportedTensors::all;
        return takes_average ? ExportedTensors::averaged : ExportedTensors::of_model;
    }
};

// A reader goes by the ending.
void check_ending(const ExportArguments& arguments) {
    static const std::map<std::string, std::pair<ExportFormat, const char*>> endings{
        {".npz", {ExportFormat::npz, "npz"}},
        {".safetensors", {ExportFormat::safetensors, "safetensors"}},
        {".pt2", {ExportFormat::program, "pt2"}},
        {".pt", {ExportFormat::torchscript, "torchscript"}}};
    constexpr std::array others{".pth", ".ckpt", ".bin", ".pkl", ".onnx", ".h5", ".hdf5"};
    const std::string ending = arguments.out.extension();
    check(std::ranges::find(others, ending) == others.end(),
          "E106",
          fmt::format("--out ends in {}, which no --format writes", ending),
          "programs that read such files would not read these weights",
          "give --out NAME.safetensors");
    const auto found = endings.find(ending);
    check(found == endings.end() || found->second.first == arguments.format, [&] {
        return Error("E106",
                     fmt::format("--out ends in {}, and --format is another", found->first),
                     "",
                     fmt::format("give --format {}, or another ending", found->second.second));
    });
}

void check_together(const ExportArguments& arguments) {
    check_given(!arguments.out.empty(), "out");
    check_ending(arguments);
    check_fits(!arguments.takes_all || !arguments.takes_average,
               "--all and --average are both given",
               "--all includes the average, under its own name");
    const bool is_program = arguments.format == ExportFormat::program;
    check_fits(
        !arguments.takes_all || !(is_program || arguments.format == ExportFormat::torchscript),
        fmt::format("--all does not go with --format {}", is_program ? "pt2" : "torchscript"),
        "a model's file cannot hold the optimizer's state",
        "use --format safetensors");
}

ExportSummary write_weights(const fs::path& run,
                            const fs::path& checkpoint,
                            const ExportArguments& arguments,
                            const Invocation& call) {
    if (arguments.format == ExportFormat::torchscript) {
        return call.process.program.export_script(
            run, checkpoint, arguments.out, arguments.tensors());
    }
    const auto format =
        arguments.format == ExportFormat::npz ? WeightsFormat::npz : WeightsFormat::safetensors;
    Progress progress;
    const auto show = [&](std::uint64_t done, std::uint64_t total) {
        progress.update("export", done, total, ProgressUnit::bytes);
    };
    const WeightsExport options{.format = format, .tensors = arguments.tensors(), .progress = show};
    if (arguments.format == ExportFormat::program)
        return export_program(run, checkpoint, arguments.out, options);
    return export_weights(run, checkpoint, arguments.out, options);
}

int run_export(const ExportArguments& arguments, const Invocation& call) {
    check_one_process(call, "export", "it runs in one process");
    const fs::path run = call.positionals[0];
    check_together(arguments);
    const Program& program = call.process.program;
    if (arguments.format == ExportFormat::torchscript && program.export_script == nullptr)
        become_rank(rank_program(program), call.words);
    const CheckpointInfo info = chosen_checkpoint(run, arguments.step);
    const std::string facts = prediction_facts(run, info.step);
    std::optional<NewFile> beside;
    if (!facts.empty() && !fs::exists(arguments.out)) {
        const fs::path path = arguments.out.string() + ".json";
        // That of weights which are gone.
        if (fs::exists(path) &&
            read_file(path).find("\"lockstep-prediction\"") != std::string::npos)
            fs::remove(path);
        beside.emplace(path);
    }
    const ExportSummary summary = write_weights(run, info.path, arguments, call);
    print_once(fmt::format("exported {} tensors of step {} to {} ({})\n",
                           summary.tensors,
                           summary.step,
                           arguments.out.string(),
                           bytes_text(summary.bytes)));
    if (!beside) return 0;
    beside->write(std::as_bytes(std::span(facts)));
    beside->finish();
    print_once(fmt::format("what predictions need, such as mean and deviation, is in {}.json\n",
                           arguments.out.string()));
    const Json deciding = read_run_record(run).deciding;
    if (deciding.value("ema", 0.0) > 0 && arguments.tensors() == ExportedTensors::of_model)
        once(Level::info,
             "these are the trained weights; --average writes their moving average, which eval and "
             "predict use");
    if (deciding.value("scale-targets", false))
        once(Level::info,
             "its outputs are of scaled targets: multiply by std and add mean of 'targets' in "
             "'{}.json'",
             arguments.out.string());
    return 0;
}

}  // namespace

Command export_command() {
    auto arguments = std::make_shared<ExportArguments>();
    return {
        .name = "export",
        .summary = "write a run's weights into one file for other programs",
        .usage = "lockstep export RUN --out FILE [options]",
        .text =
            "Writes parameters and buffers of the newest checkpoint, f32 under the model's names,\n"
            "for 'lockstep train --load-weights', Python's safetensors and numpy.load().\n"
            "--format pt2, for runs of --model FILE.pt2, writes that file with the new weights,\n"
            "for Python's torch.export.load() and --model; --format torchscript does so for runs\n"
            "of --model FILE.pt. Of a run of FILE.pt2, safetensors and npz also contain what does\n"
            "not learn, as load_state_dict() wants it.\n\n"
            "FILE.json, beside it, has what predictions need: mean and deviation, names of "
            "classes\n"
            "and columns.\n\n"
            "Examples:\n"
            "  lockstep export runs/a --out a.safetensors\n"
            "  lockstep export runs/b --out b.pt2 --format pt2 --step 400\n",
        .table = {{"Weights",
                   {path_option("out FILE", arguments->out, "new file"),
                    enum_option("format safetensors|npz|pt2|torchscript",
                                arguments->format,
                                "format of the file"),
                    flag_option("average",
                                arguments->takes_average,
                                "write the moving average of --ema instead of the parameters"),
                    flag_option("all",
                                arguments->takes_all,
                                "also write the optimizer's state, as optimizer.STATE.NAME")}},
                  checkpoint_group(arguments->step)},
        .positionals = 1,
        .run = [arguments](const Invocation& call) { return run_export(*arguments, call); }};
}

}  // namespace lockstep
