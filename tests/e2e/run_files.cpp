// SPDX-License-Identifier: Apache-2.0
#include "run_files.hpp"

#include "support/temp_dir.hpp"

#include <map>
#include <numeric>
#include <regex>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::test {

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

}  // namespace lockstep::test
