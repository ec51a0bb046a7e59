// SPDX-License-Identifier: Apache-2.0
// Running the program as a user does: by its path, from outside, looking only at what it leaves.
// With what runs leave in their directories, and small data to train on.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/process.hpp"

#include "data/samples.hpp"
#include "support/ends.hpp"
#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/types.h>

namespace lockstep::test {

using testing::AllOf, testing::ContainsRegex, testing::ElementsAre, testing::EndsWith;
using testing::MatchesRegex, testing::Not, testing::StartsWith;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

/// The program under test: LOCKSTEP_PROGRAM, or the one of this build.
std::string program();

/// For what hangs: below the tests' own time limits, above what a busy machine takes.
constexpr double ample_s = 400;

/// The words of `line` between blanks; each that is "%" stands for the next of `values`.
Words typed(const std::string& line, const Words& values = {});

/// `lockstep WORDS`; ends within `timeout_s` or throws E611.
ProcessResult run_lockstep(const Words& words,
                           const Variables& environment = {},
                           double timeout_s = ample_s);

/// `line` in a shell, in `folder`; `lockstep` is the program under test, `python3` the system's.
ProcessResult in_shell(const fs::path& folder, const std::string& line);

/// What the program `two_hosts` says where it can make no hosts; "" where it can.
std::string hosts_obstacle(const std::string& two_hosts);

/// "mpirun -np N ..." up to the program, on fewer cores if need be.
Words mpirun_words(int ranks);

/// A training that wants a length yet.
Words train_words(const fs::path& data, const fs::path& run, const std::string& model, int batch);

/// `lockstep` is to start so many, on a machine that may have fewer cores.
Words on_ranks(int ranks);

/// `mpirun -np RANKS lockstep WORDS`, as users with their own mpirun line do.
ProcessResult run_under_mpirun(int ranks, const Words& words, const Variables& environment = {});

Words operator+(Words words, const Words& more);

/// The line of `text` from `words` on; "" where they are not in it.
std::string line_from(const std::string& text, const std::string& words);

// What a run leaves in its directory, read as a stranger would: by the names and formats it
// promises.

/// One value a line; a last line that is not whole is left out.
std::vector<Json> json_lines(const fs::path& path);

/// Steps of the training records of metrics.jsonl, in the order of the file.
std::vector<std::int64_t> training_steps(const fs::path& run);

/// The newest step in metrics.jsonl, 0 before the first.
std::int64_t newest_step(const fs::path& run);

/// Of the newest evaluation in metrics.jsonl; -1 before the first.
double last_accuracy(const fs::path& run);

/// "complete, step 100, exit 0": what state.json says.
std::string state_of(const fs::path& run);

/// The hash after "parameters" in what `train` printed; "" if there is none.
std::string printed_hash(const std::string& output);

/// Expects that both folders have files of the same names and bytes.
void expect_same_files(const fs::path& one, const fs::path& other);

/// The step in state.json.
std::int64_t state_step(const fs::path& run);

/// The folder of the checkpoint of `step`.
fs::path checkpoint_of(const fs::path& run, std::int64_t step);

/// The manifest of that.
Json manifest_of(const fs::path& run, std::int64_t step);

/// Damages a file; links to the old one keep its bytes.
void flip_last_byte(const fs::path& file);

/// 1, 2, ..., `last`.
std::vector<std::int64_t> all_steps(std::int64_t last);

/// Small data sets, packed by the program under test when one of them is first asked for: 600
/// images of 28x28 in 10 classes for training and 200 to test on, with the IDX files of the former.
fs::path train_data();
fs::path test_data();
fs::path train_images();
fs::path train_labels();

/// The only shard of a data set.
fs::path shard_of(const fs::path& data);

/// A copy of the packed training set as `folder`, to be damaged.
void copy_train_set(const fs::path& folder);

/// A started program, in a process group of its own, that the test may send signals to. Its
/// destructor kills what still runs.
class Background {
  public:
    /// Output goes to `output`, which is replaced.
    Background(const Words& argv, const fs::path& output);
    ~Background();
    Background(const Background&) = delete;
    Background& operator=(const Background&) = delete;

    pid_t pid() const { return pid_; }
    void send(int signal) const;
    bool has_ended();

    /// Until `is_so`, or until it has ended; whether that was soon.
    template <class Condition>
    bool until(const Condition& is_so) {
        return eventually([&] { return is_so() || has_ended(); }, 60);
    }

    /// The same of a step of `run` beyond `step`.
    bool trains(const fs::path& run, std::int64_t step = 0) {
        return until([&] { return newest_step(run) > step; });
    }

    /// Exit code, 128 + signal when killed; nothing if it still runs after `timeout_s`.
    std::optional<int> wait(double timeout_s = ample_s);

  private:
    pid_t pid_ = -1;
    std::optional<int> exit_code_;
};

/// The child processes of `pid`, in order of start.
std::vector<pid_t> children_of(pid_t pid);

/// Processes, but this one, whose command line has `word` in it.
std::vector<pid_t> processes_with(const std::string& word);

/// Tests of runs below a folder of their own, of which one may be in the background.
class RunsTest : public testing::Test {
  protected:
    /// `words` after that of the program; what it says goes to output().
    std::unique_ptr<Background> started(const Words& words, const Words& before = {}) const {
        return std::make_unique<Background>(before + Words{program()} + words, folder_ / "output");
    }
    std::string output() const { return content_of(folder_ / "output"); }
    /// `line` in a shell in the folder.
    ProcessResult shell(const std::string& line) const { return in_shell(folder_.path(), line); }
    /// Python in the folder, with NumPy as `n`, and h5py; it must end well.
    void python(const std::string& text) const;

    void expect_nothing_left() const {
        EXPECT_TRUE(eventually([&] { return processes_with(run_).empty(); }, 30))
            << "ranks outlive their launcher";
    }

    TempDir folder_;
    const fs::path run_ = folder_ / "run";
};

}  // namespace lockstep::test
