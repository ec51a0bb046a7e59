// SPDX-License-Identifier: Apache-2.0
#include "bad_inputs.hpp"

#include <algorithm>
#include <regex>
#include <set>

namespace lockstep::test {
namespace {

constexpr std::ptrdiff_t most_lines = 12;

// Three where the message says which ranks found it.
int told_ranks(const BadInput& input) {
    return input.finder == Finder::first_rank ? 2 : 3;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

// With the paths of this run in place of <data> and <tmp>.
std::string with_paths(std::string text, const TempDir& folder) {
    text = replaced(std::move(text), "<data>", train_data().string());
    return replaced(std::move(text), "<tmp>", folder.path().string());
}

Words words_of(const BadInput& input, const TempDir& folder) {
    Words words;
    for (const std::string& word : input.words) words.push_back(with_paths(word, folder));
    return words;
}

std::string message_of(const BadInput& input, bool ranks_find_it) {
    const bool names_ranks = ranks_find_it && (input.finder == Finder::command_line ||
                                               input.finder == Finder::every_rank);
    return replaced(input.message, "<same>", names_ranks ? " (same on ranks 1-2)" : "");
}

// What the program says but for what changes from run to run, and for what training showed before.
std::string lasting_part(const BadInput& input, std::string text, const TempDir& folder) {
    text = replaced(std::move(text), train_data().string(), "<data>");
    text = replaced(std::move(text), folder.path().string(), "<tmp>");
    if (input.finder == Finder::some_rank)
        text.erase(0, std::min(text.find("lockstep: error"), text.size()));
    text = std::regex_replace(text, std::regex("\\(rank [0-2]( on [^ )]+)?( only)?\\)"), "<rank>");
    return std::regex_replace(text, std::regex(" in [0-9.]+ ?m?s\n"), " in <time>\n");
}

void expect_failure(const BadInput& input,
                    const ProcessResult& result,
                    const std::string& message,
                    const TempDir& folder) {
    const std::string said = lasting_part(input, result.output, folder);
    EXPECT_EQ(said, message);
    EXPECT_EQ(result.exit_code, input.exit_code);
    EXPECT_LE(std::ranges::count(said, '\n'), most_lines);
}

class BadInputs : public RunsTest, public testing::WithParamInterface<BadInput> {
  protected:
    void SetUp() override { GetParam().prepare(folder_); }
};

// As one command: `train` starts the ranks itself.
TEST_P(BadInputs, AreExplainedOnce) {
    const BadInput& input = GetParam();
    Words words = words_of(input, folder_);
    if (input.is_training()) {
        const Words launch = {"--np", std::to_string(told_ranks(input)), "--oversubscribe"};
        words.insert(words.begin() + 1, launch.begin(), launch.end());
    }
    const ProcessResult result = run_lockstep(words, input.variables);
    const bool ranks_find_it = input.is_training() && input.finder != Finder::command_line;
    expect_failure(input, result, message_of(input, ranks_find_it), folder_);
}

class BadInputsOfRanks : public BadInputs {};

// As ranks that somebody's own mpirun started.
TEST_P(BadInputsOfRanks, AreExplainedOnce) {
    const BadInput& input = GetParam();
    const ProcessResult result =
        run_under_mpirun(told_ranks(input), words_of(input, folder_), input.variables);
    expect_failure(input, result, message_of(input, true), folder_);
}

const auto name_of = [](const auto& info) { return info.param.name; };

// Of what is found before ranks are started, one of each kind: it is the same code in each rank.
std::vector<BadInput> training_ones(std::vector<BadInput> inputs) {
    const std::set<std::string> of_command_line = {
        "UnknownOption", "RequiredOptionMissing", "ConfigSyntax", "VariableThatIsNoNumber"};
    std::erase_if(inputs, [&](const BadInput& input) {
        return !input.is_training() ||
               (input.finder == Finder::command_line && !of_command_line.contains(input.name));
    });
    return inputs;
}

INSTANTIATE_TEST_SUITE_P(, BadInputs, testing::ValuesIn(bad_inputs()), name_of);
INSTANTIATE_TEST_SUITE_P(,
                         BadInputsOfRanks,
                         testing::ValuesIn(training_ones(bad_inputs())),
                         name_of);

}  // namespace
}  // namespace lockstep::test
