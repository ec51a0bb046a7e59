// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <csignal>
#include <cstdlib>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>
#include <stdexcept>

#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::test {

std::string program() {
    const char* given = std::getenv("LOCKSTEP_PROGRAM");
    return given ? given : LOCKSTEP_BUILT_PROGRAM;
}

namespace {

// What the machine's users and site configured is none of a test's business.
Variables without_standing_configs(Variables environment) {
    environment.emplace("XDG_CONFIG_HOME", "/nonexistent");
    environment.emplace("LOCKSTEP_SITE_CONFIG", "");
    return environment;
}

}  // namespace

Words typed(const std::string& line, const Words& values) {
    std::istringstream stream(line);
    auto next = values.begin();
    Words words;
    for (std::string word; stream >> word;) words.push_back(word == "%" ? *next++ : word);
    expect(next == values.end(), "each value has its place in a line");
    return words;
}

ProcessResult run_lockstep(const Words& words, const Variables& environment, double timeout_s) {
    return run_process(Words{program()} + words, without_standing_configs(environment), timeout_s);
}

ProcessResult in_shell(const fs::path& folder, const std::string& line) {
    const std::string path = fs::path(program()).parent_path().string() + ":/usr/bin:/bin:";
    return run_process({"/bin/sh", "-c", "cd \"$0\" && " + line, folder},
                       {{"PATH", path + std::getenv("PATH")}},
                       ample_s);
}

std::string line_from(const std::string& text, const std::string& words) {
    const std::size_t at = text.find(words);
    return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
}

Words train_words(const fs::path& data, const fs::path& run, const std::string& model, int batch) {
    return {
        "train", "--data", data, "--run", run, "--model", model, "--batch", std::to_string(batch)};
}

Words on_ranks(int ranks) {
    return {"--np", std::to_string(ranks), "--oversubscribe"};
}

std::string hosts_obstacle(const std::string& two_hosts) {
    const std::string said = run_process({two_hosts, "a:1", "--", "true"}, {}, 60).output;
    return said.find("two_hosts: skipped") == said.npos ? "" : said;
}

// Open MPI's own files go where they are removed even if ranks are aborted or killed.
Words mpirun_words(int ranks) {
    static const TempDir folder;
    Words words = {"mpirun", "-np", std::to_string(ranks), "--oversubscribe"};
    words = words + Words{"--mca", "orte_execute_quiet", "1"};  // --quiet, which 5.0 does not have
    words = words + Words{"--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "pml", "ob1"};
    for (const char* place : {"orte_tmpdir_base",
                              "prte_tmpdir_base",
                              "btl_vader_backing_directory",
                              "osc_sm_backing_directory"})
        words = words + Words{"--mca", place, folder.path()};
    return words;
}

ProcessResult run_under_mpirun(int ranks, const Words& words, const Variables& environment) {
    return run_process(mpirun_words(ranks) + Words{program()} + words,
                       without_standing_configs(environment),
                       ample_s);
}

Words operator+(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

namespace {

int exit_code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Background::Background(const Words& argv, const fs::path& output)
    : pid_(start_child(
               Words{"sh", "-c", "exec \"$@\" >\"$0\" 2>&1", output} + argv, {}, ChildPipes::none)
               .pid) {}

Background::~Background() {
    if (has_ended()) return;
    if (::kill(-pid_, SIGKILL) != 0) ::kill(pid_, SIGKILL);  // it leads no group yet
    wait();
}

void Background::send(int signal) const {
    if (!exit_code_) ::kill(pid_, signal);
}

bool Background::has_ended() {
    int status = 0;
    if (!exit_code_ && ::waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = exit_code_of(status);
    return exit_code_.has_value();
}

std::optional<int> Background::wait(double timeout_s) {
    eventually([&] { return has_ended(); }, timeout_s);
    return exit_code_;
}

std::vector<pid_t> children_of(pid_t pid) {
    std::istringstream numbers(content_of(fs::path("/proc") / std::to_string(pid) / "task" /
                                          std::to_string(pid) / "children"));
    std::vector<pid_t> found;
    for (pid_t child = 0; numbers >> child;) found.push_back(child);
    return found;
}

std::vector<pid_t> processes_with(const std::string& word) {
    std::vector<pid_t> found;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc", gone)) {
        const auto pid = parse_integer(entry.path().filename().string());
        if (!pid || *pid == ::getpid()) continue;
        if (content_of(entry.path() / "cmdline").find(word) != std::string::npos)
            found.push_back(static_cast<pid_t>(*pid));
    }
    return found;
}

void RunsTest::python(const std::string& text) const {
    ASSERT_THAT(run_process({"/bin/sh",
                             "-c",
                             "cd \"$0\" && /usr/bin/python3 -c \"$1\"",
                             folder_.path(),
                             "import h5py, numpy as n; r=n.random.default_rng(1)\n" + text}),
                ends(0));
}

std::vector<Json> json_lines(const fs::path& path) {
    std::istringstream lines(content_of(path));
    std::vector<Json> found;
    for (std::string line; std::getline(lines, line) && !lines.eof();)
        found.push_back(parse_json(line, path.string()));
    return found;
}

std::vector<std::int64_t> training_steps(const fs::path& run) {
    std::vector<std::int64_t> steps;
    for (const Json& record : json_lines(run / "metrics.jsonl"))
        if (record.contains("loss")) steps.push_back(record.at("step").get<std::int64_t>());
    return steps;
}

std::int64_t newest_step(const fs::path& run) {
    const auto steps = training_steps(run);
    return steps.empty() ? 0 : steps.back();
}

double last_accuracy(const fs::path& run) {
    double accuracy = -1;
    for (const Json& record : json_lines(run / "metrics.jsonl"))
        accuracy = record.value("test_accuracy", accuracy);
    return accuracy;
}

std::string state_of(const fs::path& run) {
    const Json state = read_json(run / "state.json");
    return fmt::format("{}, step {}, exit {}",
                       state.at("phase").get<std::string>(),
                       state.at("step").get<std::int64_t>(),
                       state.at("exit").get<int>());
}

std::string printed_hash(const std::string& output) {
    std::smatch found;
    const std::regex line("(?:^|\n)parameters +([0-9a-f]{32})\n");
    return std::regex_search(output, found, line) ? found[1].str() : "";
}

void expect_same_files(const fs::path& one, const fs::path& other) {
    const auto files_in = [](const fs::path& folder) {
        std::map<std::string, std::string> files;
        for (const auto& entry : fs::directory_iterator(folder))
            files[entry.path().filename()] = content_of(entry.path());
        return files;
    };
    const auto files = files_in(one), others = files_in(other);
    EXPECT_FALSE(files.empty()) << one;
    EXPECT_EQ(files.size(), others.size()) << one;
    for (const auto& [name, bytes] : files)
        EXPECT_TRUE(others.contains(name) && others.at(name) == bytes) << one / name;
}

std::vector<std::int64_t> all_steps(std::int64_t last) {
    std::vector<std::int64_t> steps(static_cast<std::size_t>(last));
    std::iota(steps.begin(), steps.end(), 1);
    return steps;
}

std::int64_t state_step(const fs::path& run) {
    return read_json(run / "state.json").at("step").get<std::int64_t>();
}

fs::path checkpoint_of(const fs::path& run, std::int64_t step) {
    return run / fmt::format("ckpt/step-{:06}", step);
}

Json manifest_of(const fs::path& run, std::int64_t step) {
    return read_json(checkpoint_of(run, step) / "manifest.json");
}

void flip_last_byte(const fs::path& file) {
    std::string bytes = content_of(file);
    bytes.back() = static_cast<char>(~bytes.back());
    fs::remove(file);
    write_file_atomically(file, bytes);
}

namespace {

void pack(const TempDir& folder, const std::string& name, std::uint64_t count, std::uint64_t seed) {
    const Samples samples = make_samples(count, seed, {.height = 28, .width = 28});
    const fs::path images = folder.file(name + "-images.idx", images_text(samples));
    const fs::path labels = folder.file(name + "-labels.idx", labels_text(samples));
    const ProcessResult result =
        run_lockstep(typed("data pack --images % --labels % --out % --block-rows 32",
                           {images, labels, folder / name}));
    if (result.exit_code != 0) throw std::runtime_error("data pack failed:\n" + result.output);
}

fs::path small_data(const char* name) {
    struct Packed {
        Packed() {
            pack(folder, "train", 600, 1);
            pack(folder, "test", 200, 2);
        }
        TempDir folder;
    };
    static const Packed packed;
    return packed.folder / name;
}

}  // namespace

fs::path train_data() {
    return small_data("train");
}
fs::path test_data() {
    return small_data("test");
}
fs::path train_images() {
    return small_data("train-images.idx");
}
fs::path train_labels() {
    return small_data("train-labels.idx");
}

fs::path shard_of(const fs::path& data) {
    for (const auto& entry : fs::directory_iterator(data))
        if (entry.path().extension() == ".h5") return entry.path();
    throw std::runtime_error("no shard in " + data.string());
}

void copy_train_set(const fs::path& folder) {
    fs::create_directories(folder.parent_path());
    fs::copy(train_data(), folder, fs::copy_options::recursive);
}

}  // namespace lockstep::test
