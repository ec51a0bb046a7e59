// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/text_table.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <span>

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

// As the newest one says.
std::map<std::int64_t, std::string> kept_texts(const std::vector<CheckpointInfo>& found,
                                               const CheckpointState& newest) {
    std::vector<std::int64_t> steps;
    for (const CheckpointInfo& info : found) steps.push_back(info.step);
    const std::vector<KeptBecause> kept = kept_because(newest.retention, steps);
    std::map<std::int64_t, std::string> texts;
    for (std::size_t i = 0; i < steps.size(); ++i) texts[steps[i]] = kept[i].text();
    return texts;
}

// "best accuracy 0.91" if the step's evaluation is one of the best; else the last one until then.
std::string figure_text(const BestEvaluation& best, const CheckpointState& state) {
    if (state.step == best.step) return fmt::format("best {} {:.6g}", best.metric, best.value);
    const auto found = std::ranges::find(best.next, state.step, &EvaluatedStep::step);
    return found == best.next.end() ? state.evaluated.text
                                    : fmt::format("{} {:.6g}", best.metric, found->value);
}

int list(const fs::path& run) {
    const auto found = checkpoints_of(run);
    const CheckpointState newest =
        newest_checkpoint_state(RunPaths{run}.checkpoints()).value_or(CheckpointState{});
    auto kept = kept_texts(found, newest);
    std::vector<std::vector<std::string>> rows = {
        {"step", "epoch", "ranks", "size", "age", "kept", "evaluated", "parameters"}};
    std::vector<std::size_t> widths = {10, 5, 5, 10, 7, 12, 0, 0};
    for (const CheckpointInfo& info : found) try {
            const CheckpointState state = read_checkpoint_state(info.path);
            rows.push_back({std::to_string(info.step),
                            std::to_string(state.epoch),
                            std::to_string(state.ranks),
                            bytes_text(bytes_of_folder(info.path)),
                            age_text(info.path / "manifest.json"),
                            kept[info.step],
                            figure_text(newest.best, state),
                            state.parameter_hash});
            for (std::size_t i = 0; i < widths.size(); ++i)
                widths[i] = std::max(widths[i], rows.back()[i].size());
        } catch (const Error& error) {
            rows.push_back({std::to_string(info.step), error.what()});
        }
    if (widths[6] > 0) widths[6] = std::max(widths[6], rows[0][6].size());
    for (const std::vector<std::string>& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i)
            if (widths[i] > 0)
                line += fmt::format("{}{:<{}}", i > 0 ? "  " : "", row[i], widths[i]);
        print_once(line.substr(0, line.find_last_not_of(' ') + 1) + "\n");
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
    return fmt::format("{} of {} elements differ, by {:.3g} at most",
                       one.differing,
                       elements_of(*one.first),
                       one.largest);
}

int compare(const fs::path& a, const fs::path& b) {
    const CheckpointInfo first = checkpoint_at(a), second = checkpoint_at(b);
    Progress progress;
    const CheckpointDifference found =
        compare_checkpoints(first.path, second.path, [&](std::uint64_t done, std::uint64_t total) {
            progress.update("compare", done, total, ProgressUnit::bytes);
        });
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

// What is in the checkpoint at `path`, besides values. Versions are those of the run around it.
Json facts_of(const fs::path& path, const CheckpointManifest& manifest) {
    Json tensors = Json::array(), files = Json::object();
    for (const TensorMeta& tensor : manifest.tensors)
        tensors.push_back({{"name", tensor.name},
                           {"dtype", "f32"},
                           {"shape", tensor.shape},
                           {"bytes", tensor.count() * sizeof(float)}});
    for (const auto& [name, value] : manifest.state.counters)
        tensors.push_back(
            {{"name", name}, {"dtype", "i64"}, {"shape", Json::array()}, {"bytes", sizeof(value)}});
    for (const StoredPiece& piece : manifest.pieces)
        files[piece.file] = files.value(piece.file, std::uint64_t{0}) + piece.count * sizeof(float);
    Json facts{{"path", path.string()},
               {"bytes", bytes_of_folder(path)},
               {"state", parse_json(checkpoint_manifest_text(manifest), path.string()).at("state")},
               {"files", files},
               {"tensors", tensors}};
    const fs::path run = fs::absolute(path).lexically_normal().parent_path().parent_path();
    if (fs::exists(RunPaths{run}.record())) facts["versions"] = read_run_record(run).versions;
    return facts;
}

std::string members_text(const Json& object) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : object.items())
        if (!value.as_text().empty()) texts.push_back(fmt::format("{} {}", name, value.as_text()));
    return fmt::format("{}", fmt::join(texts, ", "));
}

std::string facts_text(const Json& facts, const CheckpointState& state) {
    std::string text = printable(facts.at("path").as_text()) + "\n";
    const auto add = [&text](std::string_view name, const std::string& fact) {
        if (!fact.empty())
            text += fmt::format("  {:<12}{}\n", name, wrapped(printable(fact), 14, 86));
    };
    add("step", fmt::format("{}, after {} updates", state.step, state.updates));
    add("position",
        fmt::format("{} epochs and {} samples of the next one",
                    state.epoch,
                    grouped(state.order.consumed)));
    add("parameters", state.parameter_hash);
    add("written by",
        fmt::format("{} of {} virtual ranks", ranks_count_text(state.ranks), state.virtual_ranks));
    add("size", bytes_text(facts.at("bytes").get<std::uint64_t>()));
    add("files", members_text(facts.at("files")));
    add("evaluated", state.evaluated.text);
    if (!state.best.metric.empty())
        add("best",
            fmt::format(
                "{} {:.6g} of step {}", state.best.metric, state.best.value, state.best.step));
    if (state.loss_scale.factor != 1) add("loss scale", fmt::format("{}", state.loss_scale.factor));
    add("processor", state.contract.processor);
    add("versions", members_text(facts.value("versions", Json::object())));
    add("settings", members_text(state.contract.deciding));
    std::vector<std::vector<std::string>> rows{{"tensor", "type", "shape", "bytes"}};
    for (const Json& tensor : facts.at("tensors"))
        rows.push_back({tensor.at("name").as_text(),
                        tensor.at("dtype").as_text(),
                        tensor.at("shape").dump(),
                        grouped(tensor.at("bytes").get<std::uint64_t>())});
    return text + text_table(rows, Align::left, Align::right);
}

// The newest of `found` that is whole: every byte of it is as it was written.
std::optional<std::int64_t> newest_whole(const std::vector<CheckpointInfo>& found) {
    for (auto info = found.rbegin(); info != found.rend(); ++info) try {
            Progress progress("verify", bytes_of_folder(info->path), ProgressUnit::bytes);
            verify_checkpoint(
                info->path, 0, 1, [&](std::uint64_t bytes) { progress.update(bytes); });
            return info->step;
        } catch (const Error&) {  // an older one may be
        }
    return {};
}

int remove(const fs::path& run, std::span<const std::string> steps, bool is_dry) {
    std::set<std::int64_t> wanted;
    for (const std::string& word : steps) wanted.insert(chosen_checkpoint(run, word).step);
    const RunDirectory held = RunDirectory::open(run);
    const fs::path root = held.paths().checkpoints();
    const std::vector<CheckpointInfo> found = list_checkpoints(root);
    const auto kept = kept_texts(found, newest_checkpoint_state(root).value_or(CheckpointState{}));
    std::vector<CheckpointInfo> going, staying;
    for (const CheckpointInfo& info : found)
        (wanted.contains(info.step) ? going : staying).push_back(info);
    const auto whole = newest_whole(staying);
    const auto last_whole = whole ? std::nullopt : newest_whole(going);
    check(!last_whole, [&] {
        return Error("E303",
                     fmt::format("no whole checkpoint would be left in '{}'", run.string()),
                     fmt::format("that of step {} is the last one", *last_whole),
                     fmt::format("name others ('lockstep ckpt ls {0}' lists them), or remove the "
                                 "whole run: rm -r {0}",
                                 shell_word(run.string())));
    });
    std::uint64_t freed = 0;
    for (const CheckpointInfo& info : going) {
        const std::uint64_t bytes = bytes_of_folder(info.path);
        freed += bytes;
        print_once(fmt::format(
            "step {:<10} {:<10}  {}\n", info.step, bytes_text(bytes), kept.at(info.step)));
    }
    if (!is_dry) remove_checkpoints(root, {wanted.begin(), wanted.end()});
    print_once(fmt::format("{} {}{}\n",
                           is_dry ? "would free" : "freed",
                           bytes_text(freed),
                           whole ? fmt::format("; the run goes on from step {}", *whole)
                                 : "; no checkpoint is whole"));
    return 0;
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
    check(damaged == 0,
          "E310",
          fmt::format("{} of {} checkpoints are damaged", damaged, found.size()),
          "they are listed above",
          "nothing needs to be done if a newer one is whole: a resumed run skips them");
    return 0;
}

}  // namespace

Command ckpt_ls_command() {
    return {.name = "ckpt ls",
            .summary = "list the checkpoints of a run",
            .usage = "lockstep ckpt ls RUN",
            .text =
                "Step, epoch, ranks that wrote it, size, age, why it is kept, the last evaluation "
                "until\n"
                "then, hash of all parameters.\n"
                "newest: one of 'train --keep last=N'. every: the first after a period of\n"
                "--keep every=PERIOD. best: of one of the best evaluations.\n"
                "read: the newest start began with it, so it is known to be whole.\n"
                "rollback: --on-nonfinite rollback may need it. -: it goes with the next save.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return list(call.positionals[0]); }};
}

Command ckpt_inspect_command() {
    auto json = std::make_shared<bool>(false);
    return {
        .name = "ckpt inspect",
        .summary = "show what a checkpoint holds",
        .usage = "lockstep ckpt inspect CHECKPOINT [--json]",
        .text =
            "CHECKPOINT is a checkpoint (runs/a/ckpt/step-000400), or a run, whose newest one is\n"
            "taken. Shows step, epoch, ranks that wrote it, files, best evaluation, versions,\n"
            "settings that decide the bits, and each tensor. 'lockstep export' writes the weights\n"
            "into one file.\n",
        .table = {json_group(*json)},
        .positionals = 1,
        .run = [json](const Invocation& call) {
            const fs::path path = checkpoint_at(call.positionals[0]).path;
            const CheckpointManifest manifest = read_checkpoint_manifest(path);
            const Json facts = facts_of(path, manifest);
            print_once(*json ? facts.dump(2) + "\n" : facts_text(facts, manifest.state));
            return 0;
        }};
}

Command ckpt_rm_command() {
    auto is_dry = std::make_shared<bool>(false);
    return {
        .name = "ckpt rm",
        .summary = "remove checkpoints of a run",
        .usage = "lockstep ckpt rm RUN STEP... [--dry-run]",
        .text =
            "Removes the checkpoints of these steps, and says what it freed and what kept each.\n"
            "It reads those that stay, and refuses if none of them is whole. A run that trains\n"
            "is left alone. Without the newest one, a resumed run goes on from the one before\n"
            "it, with the state of that time: metrics, best evaluation and ledger.\n\n"
            "Example: lockstep ckpt rm runs/a 400 500\n",
        .table = {rehearsal_group(*is_dry)},
        .positionals = 2,
        .optional_positionals = 998,
        .run = [is_dry](const Invocation& call) {
            return remove(call.positionals[0], std::span(call.positionals).subspan(1), *is_dry);
        }};
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
