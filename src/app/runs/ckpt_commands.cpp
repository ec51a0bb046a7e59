// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::uint64_t bytes_of_folder(const fs::path& folder) {
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
}

std::vector<CheckpointInfo> checkpoints_of(const fs::path& run) {
    static_cast<void>(chosen_checkpoint(run, "newest"));  // there is one
    return list_checkpoints(RunPaths{run}.checkpoints());
}

std::string age_text(const fs::path& file) {
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(file);
    return duration_text(std::max(0.0, std::chrono::duration<double>(age).count()));
}

// How many of the newest the run keeps; 1 where only checkpoints are left of it.
std::size_t kept_newest(const fs::path& run) {
    try {
        const Json config = read_run_record(run).config;
        const Json* const row = config.find("keep-checkpoints");
        const auto count = parse_integer(row ? row->value("value", "") : "").value_or(1);
        return static_cast<std::size_t>(std::max<std::int64_t>(count, 1));
    } catch (const Error&) {
        return 1;
    }
}

int list(const fs::path& run) {
    const auto found = checkpoints_of(run);
    const auto newest = newest_checkpoint_state(RunPaths{run}.checkpoints());
    const BestEvaluation best = newest ? newest->best : BestEvaluation{};
    const std::string note = fmt::format("  best {} {:.6g}", best.metric, best.value);
    const std::size_t first_of_newest = found.size() - std::min(found.size(), kept_newest(run));
    print_once("step        epoch  ranks  size        age      kept          parameters\n");
    for (std::size_t i = 0; i < found.size(); ++i) try {
            const CheckpointInfo& info = found[i];
            const CheckpointState state = read_checkpoint_state(info.path);
            const bool is_best = info.step == best.step, is_new = i >= first_of_newest;
            print_once(fmt::format("{:<10}  {:<5}  {:<5}  {:<10}  {:<7}  {:<12}  {}{}\n",
                                   info.step,
                                   state.epoch,
                                   state.ranks,
                                   bytes_text(bytes_of_folder(info.path)),
                                   age_text(info.path / "manifest.json"),
                                   is_best  ? (is_new ? "newest, best" : "best")
                                   : is_new ? "newest"
                                            : "-",
                                   state.parameter_hash,
                                   is_best ? note : ""));
        } catch (const Error& error) {
            print_once(fmt::format("{:<10}  {}\n", found[i].step, error.what()));
        }
    return 0;
}

CheckpointInfo checkpoint_at(const fs::path& place) {
    if (!fs::exists(place / "manifest.json")) return chosen_checkpoint(place, "newest");
    return {.path = place, .step = read_checkpoint_state(place).step};
}

std::string difference_text(const TensorDifference& one) {
    if (!one.second) return "only in the first";
    if (!one.first) return "only in the second";
    if (one.first != one.second)
        return fmt::format(
            "shape {} and {}", fmt::join(*one.first, "x"), fmt::join(*one.second, "x"));
    return fmt::format(
        "{} of {} elements differ, by {:.3g} at most",
        one.differing,
        std::accumulate(one.first->begin(), one.first->end(), std::int64_t{1}, std::multiplies<>()),
        one.largest);
}

int compare(const fs::path& a, const fs::path& b) {
    const CheckpointInfo first = checkpoint_at(a), second = checkpoint_at(b);
    std::optional<Progress> progress;
    const CheckpointDifference found =
        compare_checkpoints(first.path, second.path, [&](std::uint64_t done, std::uint64_t total) {
            if (!progress) progress.emplace("compare", total, ProgressUnit::bytes);
            progress->update(done);
        });
    progress.reset();
    print_once(fmt::format("first   step {} of {}\nsecond  step {} of {}\n",
                           first.step,
                           first.path.string(),
                           second.step,
                           second.path.string()));
    std::size_t width = 0;
    for (const TensorDifference& one : found.different) width = std::max(width, one.name.size());
    for (const TensorDifference& one : found.different)
        print_once(fmt::format("{:<{}}  {}\n", one.name, width, difference_text(one)));
    print_once(found.different.empty()
                   ? fmt::format("all {} tensors and counters have the same bits\n", found.tensors)
                   : fmt::format("{} of {} tensors and counters differ\n",
                                 found.different.size(),
                                 found.tensors));
    return found.different.empty() ? 0 : 1;
}

int verify(const fs::path& run) {
    const auto found = checkpoints_of(run);
    std::uint64_t total = 0, before = 0;
    for (const CheckpointInfo& info : found) total += bytes_of_folder(info.path);
    Progress progress("verify", total, ProgressUnit::bytes);
    int damaged = 0;
    for (const CheckpointInfo& info : found) try {
            const std::uint64_t begin = before;
            before += bytes_of_folder(info.path);
            verify_checkpoint(
                info.path, 0, 1, [&](std::uint64_t bytes) { progress.update(begin + bytes); });
            print_once(fmt::format("step {:<10} whole\n", info.step));
        } catch (const Error& error) {
            ++damaged;
            print_once(fmt::format(
                "step {:<10} {} {}: {}\n", info.step, error.code(), error.what(), error.why()));
        }
    check(damaged == 0, [&] {
        return Error("E310",
                     fmt::format("{} of {} checkpoints are damaged", damaged, found.size()),
                     "they are listed above",
                     "nothing needs to be done if a newer one is whole: a resumed run skips them");
    });
    return 0;
}

enum class ExportFormat { safetensors, npz, torchscript, program };

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
    const auto found = endings.find(arguments.out.extension().string());
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
    check(!arguments.takes_all || !arguments.takes_average, [] {
        return Error("E106",
                     "--all and --average are both given",
                     "--all includes the average, under its own name",
                     "drop one of them");
    });
    const bool is_program = arguments.format == ExportFormat::program;
    check(!arguments.takes_all || !(is_program || arguments.format == ExportFormat::torchscript),
          [&] {
              return Error("E106",
                           fmt::format("--all does not go with --format {}",
                                       is_program ? "pt2" : "torchscript"),
                           "a model's file cannot hold the optimizer's state",
                           "use --format safetensors");
          });
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
    std::optional<Progress> progress;
    const auto show = [&](std::uint64_t done, std::uint64_t total) {
        if (!progress) progress.emplace("export", total, ProgressUnit::bytes);
        progress->update(done);
    };
    const WeightsExport options{.format = format, .tensors = arguments.tensors(), .progress = show};
    if (arguments.format == ExportFormat::program)
        return export_program(run, checkpoint, arguments.out, options);
    return export_weights(run, checkpoint, arguments.out, options);
}

int run_export(const ExportArguments& arguments, const Invocation& call) {
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
    if (read_run_record(run).deciding.value("scale-targets", false))
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
                   {path_option("out", "FILE", arguments->out, "new file"),
                    choice_option<ExportFormat>("format",
                                                arguments->format,
                                                {{"safetensors", ExportFormat::safetensors},
                                                 {"npz", ExportFormat::npz},
                                                 {"pt2", ExportFormat::program},
                                                 {"torchscript", ExportFormat::torchscript}},
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

Command ckpt_ls_command() {
    return {
        .name = "ckpt ls",
        .summary = "list the checkpoints of a run",
        .usage = "lockstep ckpt ls RUN",
        .text =
            "Step, epoch, ranks that wrote it, size, age, why it is kept, hash of all parameters.\n"
            "newest: one of the last --keep-checkpoints. best: by 'train --keep-best' or\n"
            "--early-stop, with its figure. -: for a rollback, or it goes with the next save.\n",
        .positionals = 1,
        .run = [](const Invocation& call) { return list(call.positionals[0]); }};
}

Command ckpt_diff_command() {
    return {
        .name = "ckpt diff",
        .summary = "compare two checkpoints bit for bit",
        .usage = "lockstep ckpt diff A B",
        .text =
            "A and B are checkpoints (runs/a/ckpt/step-000400), or runs, whose newest one is\n"
            "taken. Names what differs: weights, buffers, optimizer state and counters, in how\n"
            "many elements, and by how much. Ranks and nodes that wrote them do not matter.\n"
            "Exit code: 0 all bits are equal, 1 some differ.\n",
        .positionals = 2,
        .run = [](const Invocation& call) {
            return compare(call.positionals[0], call.positionals[1]);
        }};
}

Command ckpt_verify_command() {
    return {.name = "ckpt verify",
            .summary = "check every byte of a run's checkpoints",
            .usage = "lockstep ckpt verify RUN",
            .text = "Reads all checkpoints and compares all hashes.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return verify(call.positionals[0]); }};
}

}  // namespace lockstep
