// SPDX-License-Identifier: Apache-2.0
// A run outlives its processes; these rules decide which process may write into it. A lock
// separates starts that know of each other. For those that do not (a node cut off from SLURM, which
// began the job anew elsewhere) there is a count:
//
//     RUN/incarnation   3         start 3 begins:  lock -> incarnation := 3 -> work
//                                 start 2, back from the dead, reads 3 before a write: E408
//
// Every start has its own logs/iN; shared files (state, checkpoints) are written only after a check
// of the count.
//
// What must never happen:
// - An older start replaces what a newer one wrote. The look and the write are two steps, so a
//   start may still lose a race of an instant; what it then replaces is a whole, earlier state,
//   never half of one.
// - Half a file: everything is written beside, flushed and renamed.
// - A run goes on with other settings that decide its bits: check_same_deciding() names each that
//   differs.
// - A folder of other files is taken for a new run and filled.
// - A folder in it that is a link is written through, or emptied: check_no_link().
// - A request is answered before its effect can be seen: state first, then the request is taken
//   away.
//
// Tested: run/run_directory_test.cpp, run_status_test.cpp, control_test.cpp;
// e2e/run_directory_test.cpp and soak/kill_resume with whole runs.
#include "lockstep/run/run_directory.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/shell_word.hpp"

#include "run_lock.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

// That of the whole run directory: of state.json, control.json, logs and metrics, too, in which
// later versions only add fields.
constexpr std::int64_t format_version = 1;
constexpr std::size_t most_record_bytes = 4 << 20;  // as values it takes many times as much
constexpr std::array<std::string_view, 4> phase_names{
    "running", "checkpointed", "complete", "failed"};

}  // namespace

// The schema of run.json.
static void describe(Record& file, RunRecord& run) {
    file.mark("format", "lockstep-run");
    file.version("format_version", format_version);
    LOCKSTEP_EACH(file.field, run.run_id, run.created_at, run.created_by);
    file.later("created_in", run.created_in);
    LOCKSTEP_EACH(file.field, run.contract, run.deciding, run.config, run.versions);
}

// The schema of state.json; states of earlier versions lack some fields.
static void describe(Record& file, RunState& state) {
    file.field("phase", state.phase, phase_names);
    LOCKSTEP_EACH(file.field, state.step, state.epoch, state.reason, state.exit);
    LOCKSTEP_EACH(file.later, state.steps_total, state.epochs, state.max_steps);
    LOCKSTEP_EACH(file.later, state.incarnation, state.answered);
    file.field("updated", state.updated);
}

namespace {

std::string pretty(const Json& json) {
    return json.dump(2) + '\n';
}

std::string state_text(const RunState& state, std::int64_t incarnation) {
    RunState now = state;
    now.incarnation = incarnation;
    now.updated = utc_text(unix_time_s());
    return pretty(json_of_record(now));
}

bool is_starting(const fs::path& path) {
    return path.filename().string().starts_with(RunPaths{}.starting("").filename().string());
}

/// Removes folders of starts that were killed before they held the run. A younger start may still
/// wait.
void remove_left_starts(const fs::path& root) {
    std::error_code failed;
    std::vector<fs::path> left;
    const auto some_time_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
    for (const auto& entry : fs::directory_iterator(root, failed))
        if (is_starting(entry.path()) && entry.last_write_time(failed) < some_time_ago)
            left.push_back(entry.path());
    for (const fs::path& folder : left) fs::remove_all(folder, failed);
}

/// A folder with other people's files is not ours to fill. A run is known by its lock, which is
/// the first thing in it.
void refuse_foreign_folder(const RunPaths& paths) {
    std::error_code failed;
    if (fs::exists(paths.lock(), failed) || fs::exists(paths.record(), failed)) return;
    const bool is_foreign =
        std::ranges::any_of(fs::directory_iterator(paths.root, failed),
                            [](const auto& entry) { return !is_starting(entry.path()); });
    check(!is_foreign || failed, [&] {
        return Error("E407",
                     fmt::format("'{}' has files in it, but is no run", paths.root.string()),
                     "a run directory is made by 'lockstep train' in an empty or new folder",
                     "give the name of a new folder");
    });
}

/// 0 where no incarnation has begun. Who looks for a start's logs goes down from there: so it is
/// bounded.
std::int64_t incarnation_on_disk(const fs::path& path) {
    constexpr std::int64_t most = 1'000'000;
    if (!fs::exists(status_of(path))) return 0;
    auto text = read_file(path, 64);
    text.erase(text.find_last_not_of(" \n") + 1);
    const auto number = parse_integer(text);
    check(number && *number >= 0 && *number <= most, [&] {
        return Error(
            "E222",
            fmt::format(
                "'{}' is '{}', no number from 0 to {}", path.string(), printable(text), most),
            "the file counts the starts of the run",
            fmt::format("write a number into it that is larger than those in '{}'",
                        (path.parent_path() / "logs").string()));
    });
    return *number;
}

void check_newest(const RunPaths& paths, std::int64_t ours) {
    const std::int64_t newest = incarnation_on_disk(paths.incarnation());
    check(ours == 0 || newest > 0, [&] {
        return Error(
            "E410",
            fmt::format("run '{}' is no longer there", paths.root.string()),
            fmt::format("'{}', which its starts write, is gone: the folder was moved, renamed or "
                        "deleted during the run",
                        paths.incarnation().string()),
            "give the folder's new path with --run: the run resumes from its newest checkpoint");
    });
    check(ours > 0 && newest == ours, [&] {
        return Error("E408",
                     fmt::format("run '{}' was taken over", paths.root.string()),
                     fmt::format("this is start {} of the run, start {} has begun", ours, newest),
                     "nothing to do: the newer start continues the run");
    });
}

std::string difference(const std::string& key,
                       const std::string& ours,
                       const std::string& theirs,
                       const Json& origins) {
    const auto from = origins.contains(key) && origins[key].is_string()
                          ? fmt::format(" (from {})", origins[key].get<std::string>())
                          : std::string();
    return fmt::format("{} is {} in the run, now {}{}", key, ours, theirs, from);
}

/// One sentence for each key whose value is not the same in both.
std::vector<std::string> differences(const Json& ours, const Json& theirs, const Json& origins) {
    std::vector<std::string> found;
    for (const auto& [key, value] : ours.items()) {
        const Json* const other = theirs.find(key);
        if (!other || *other != value)
            found.push_back(
                difference(key, value.dump(), other ? other->dump() : "not set", origins));
    }
    for (const auto& [key, value] : theirs.items())
        if (!ours.contains(key)) found.push_back(difference(key, "not set", value.dump(), origins));
    return found;
}

// In place of rank 0. What it wrote before is kept. Rank 0 may be just between its look at the
// state and its write that it runs, which then replaces this one: so this is written again.
void write_end_state(const fs::path& root,
                     std::int64_t incarnation,
                     RunPhase phase,
                     std::int64_t step,
                     const std::string& reason,
                     ExitCode exit) {
    constexpr int most_writes = 5;
    constexpr std::chrono::milliseconds longest_write(100);
    check_newest(RunPaths{root}, incarnation);
    RunState state = read_run_state(root).value_or(RunState{});
    state.phase = phase;
    state.step = step;
    state.reason = reason;
    state.exit = static_cast<int>(exit);
    for (int writes = 0; writes < most_writes; ++writes) {
        write_file_atomically(RunPaths{root}.state(), state_text(state, incarnation));
        std::this_thread::sleep_for(longest_write);
        const RunState found = read_run_state(root).value_or(RunState{});
        if (found.phase != RunPhase::running || found.incarnation != incarnation) return;
    }
}

// Returns the options that restore the run's settings, " with --lr 0.001 without --no-bias"; "" if
// no option can.
std::string options_of(const Json& ours, const Json& theirs, const Json& origins) {
    std::string given, left_out;
    for (const auto& [name, value] : theirs.items())
        if (!ours.contains(name)) return "";
    for (const auto& [name, value] : ours.items()) {
        if (theirs.contains(name) && theirs[name] == value) continue;
        if (!origins.contains(name)) return "";  // a file's hash, or a version
        if (value == false || value == "")
            left_out += " --" + name;
        else if (value == true)
            given += " --" + name;
        else
            given += fmt::format(" --{} {}", name, shell_word(value.as_text()));
    }
    return (given.empty() ? "" : " with" + given) + (left_out.empty() ? "" : " without" + left_out);
}

// Returns the way in which another run begins with this one's weights, if they fit its model.
std::string way_of_weights(const fs::path& root, const Json& ours, const Json& theirs) {
    const std::string other = "use another run directory";
    for (const char* shaping : {"model",
                                "channels",
                                "layers",
                                "heads",
                                "width",
                                "no-bias",
                                "task",
                                "inputs",
                                "transform"})
        if (ours.value(shaping, Json()) != theirs.value(shaping, Json())) return other;
    std::error_code none;
    if (fs::directory_iterator(RunPaths{root}.checkpoints(), none) == fs::directory_iterator())
        return other;
    return fmt::format("begin another run with its weights: --from {}, and another --run",
                       shell_word(root.string()));
}

}  // namespace

bool is_of_start(std::string_view name) {
    constexpr std::array names{"config", "deadline", "dry-run", "plan", "resume", "run"};
    return std::ranges::find(names, name) != names.end();
}

std::string_view run_phase_name(RunPhase phase) {
    return phase_names.at(static_cast<std::size_t>(phase));
}

fs::path RunPaths::logs(std::int64_t incarnation) const {
    return root / "logs" / fmt::format("i{}", incarnation);
}

std::int64_t read_incarnation(const fs::path& root) {
    return incarnation_on_disk(RunPaths{root}.incarnation());
}

void write_failed_state(const fs::path& root,
                        std::int64_t incarnation,
                        const std::string& reason,
                        ExitCode exit) {
    const auto step = read_run_state(root).value_or(RunState{}).step;
    write_end_state(root, incarnation, RunPhase::failed, step, reason, exit);
}

void write_stopped_state(const fs::path& root,
                         std::int64_t incarnation,
                         std::int64_t step,
                         ExitCode exit) {
    const std::string reason = "ended by a signal before it could save";
    write_end_state(root, incarnation, RunPhase::checkpointed, step, reason, exit);
}

void check_same_deciding(const fs::path& root,
                         const Json& recorded,
                         const Json& deciding,
                         const Json& origins) {
    constexpr std::size_t most_shown = 6;
    const auto found = differences(recorded, deciding, origins);
    if (found.empty()) return;
    const auto shown = std::span(found).first(std::min(found.size(), most_shown));
    std::string text = fmt::format("{}", fmt::join(shown, "; "));
    if (found.size() > most_shown) text += fmt::format("; and {} more", found.size() - most_shown);
    const std::string options = options_of(recorded, deciding, origins);
    const std::string other = way_of_weights(root, recorded, deciding);
    throw Error("E306",
                fmt::format("run '{}' was made with other settings", root.string()),
                text,
                options.empty() ? "restore the old settings, or use another run directory"
                                : fmt::format("go on{}, or {}", options, other));
}

RunDirectory RunDirectory::open(const fs::path& root, double wait_s) {
    RunPaths paths{root};
    make_directories(root);
    refuse_foreign_folder(paths);
    for (const auto& folder : {paths.checkpoints(), paths.ledger(), paths.logs(1).parent_path()})
        check_no_link(folder);
    auto lock = take_run_lock(paths.lock(), wait_s);
    RunDirectory directory(std::move(paths), std::move(lock));
    if (fs::exists(directory.paths_.record())) directory.record_ = read_run_record(root);
    return directory;
}

RunDirectory::~RunDirectory() {
    clear_lease(lock_);
}

const RunRecord& RunDirectory::create(RunRecord record) {
    expect(is_new(), "a run is created once");
    record.run_id = random_run_id();
    record.created_at = utc_text(unix_time_s());
    record.created_by = user_at_host();
    std::error_code unknown;
    record.created_in = fs::current_path(unknown).string();
    write_file_atomically(paths_.record(), pretty(json_of_record(record)));
    return record_.emplace(std::move(record));
}

const RunRecord& RunDirectory::record() const {
    expect(!is_new(), "a run has a record once it is created");
    return *record_;
}

std::int64_t RunDirectory::begin_incarnation() {
    const auto next = incarnation_on_disk(paths_.incarnation()) + 1;
    for (const auto& stale : {paths_.asked(), paths_.taken()})
        if (std::error_code failed; fs::remove(stale, failed))
            once(Level::info, "a request to an earlier start of the run is removed");
    write_file_atomically(paths_.incarnation(), fmt::format("{}\n", next));
    incarnation_ = next;
    control_.emplace(paths_.root, next);
    remove_left_starts(paths_.root);
    make_own_folder(logs());
    make_own_folder(paths_.checkpoints());
    return next;
}

void RunDirectory::check_still_ours() const {
    check_newest(paths_, incarnation_);
}

const std::optional<ControlRequest>& RunDirectory::control_request() {
    expect(control_.has_value(), "requests are for an incarnation that has begun");
    return control_->poll(now_s());
}

// The state comes first: who asked looks for it when the request is gone.
void RunDirectory::write_state(RunState state) {
    const auto& asked = control_->pending();
    const bool answers =
        asked && (state.phase != RunPhase::running || asked->action == ControlAction::save);
    state.answered = answers ? asked->id : control_->answered();
    if (write_checked(state) && answers) control_->answer();
}

std::function<void()> RunDirectory::state_writer(RunState state) const {
    state.answered = control_->answered();
    return [this, state = std::move(state)] { write_checked(state); };
}

// Returns false where another rank has ended this start, which rank 0 does not know yet.
bool RunDirectory::write_checked(const RunState& state) const {
    check_still_ours();
    if (state.phase == RunPhase::running) {
        const RunState found = read_run_state(paths_.root).value_or(RunState{});
        if (found.phase == RunPhase::failed && found.incarnation == incarnation_) return false;
    }
    write_file_atomically(paths_.state(), state_text(state, incarnation_));
    return true;
}

std::vector<std::string> RunDirectory::warnings() const {
    std::vector<std::string> found;
    struct stat facts {};
    if (::stat(paths_.root.c_str(), &facts) == 0 && (facts.st_mode & S_IWOTH) != 0)
        found.push_back(
            fmt::format("W402: '{}' can be changed by anyone (mode {:04o}): others could swap its "
                        "checkpoints; fix: chmod 700 '{}'",
                        paths_.root.string(),
                        facts.st_mode & 07777,
                        paths_.root.string()));
    for (const fs::path& folder : {fs::absolute(paths_.root).parent_path(), paths_.root})
        if (::geteuid() == 0 && ::stat(folder.c_str(), &facts) == 0 && facts.st_uid != 0) {
            found.push_back(
                fmt::format("W403: root writes into '{}' of user {}, who can swap what root reads "
                            "there; fix: train as that user, or below a folder of root's",
                            folder.string(),
                            facts.st_uid));
            break;
        }
    return found;
}

RunRecord read_run_record(const fs::path& root) {
    const auto path = RunPaths{root}.record();
    std::error_code failed;
    check(!fs::is_directory(root, failed) || fs::exists(path, failed) || failed, [&] {
        return Error("E201",
                     fmt::format("'{}' is no run", root.string()),
                     "it has no run.json",
                     "give the folder that was given to 'train --run'");
    });
    return record_from_json<RunRecord>(read_json(path, most_record_bytes), path.string());
}

std::optional<RunState> read_run_state(const fs::path& root) {
    const auto path = RunPaths{root}.state();
    if (!fs::exists(status_of(path))) return {};
    return record_from_json<RunState>(read_json(path, most_record_bytes), path.string());
}

}  // namespace lockstep
