// SPDX-License-Identifier: Apache-2.0
// Wrong inputs and the messages that users must get for them: mistakes in options, configuration
// files and variables, data sets, files to pack, and runs. All settings without effect are in
// tests/plan/settings_test.cpp.
#include "program.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <sstream>

namespace lockstep::test {
namespace {

constexpr std::ptrdiff_t most_lines = 12;

using Preparation = std::function<void(const TempDir&)>;

/// In `words` and `message`, <data> is a good data set and <tmp> the case's own folder.
struct BadInput {
    std::string name;
    /// Who finds the mistake when `train` runs on several ranks: "command_line" before ranks are
    /// started, and under mpirun every rank; "every_rank" after they were started; "first_rank" for
    /// all; or "some_rank" alone, while training: <rank> in the message is its number.
    std::string finder;
    int exit_code = 0;
    Words words = {};
    std::string message = {};  ///< all that the program may say; <same> is where ranks are named
    Preparation prepare = [](const TempDir&) {};
    Variables variables = {};

    bool is_training() const { return words.front() == "train"; }
};

void PrintTo(const BadInput& input, std::ostream* out) {
    *out << input.name;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

void flip_bit_of_last_image(const fs::path& folder) {
    const fs::path shard = shard_of(folder);
    std::string bytes = content_of(shard);
    const std::size_t at = 200'000;
    overwrite(shard, at, std::string(1, static_cast<char>(bytes[at] ^ 4)));
}

void copy_inputs(const TempDir& folder) {
    fs::copy_file(train_images(), folder / "images");
    fs::copy_file(train_labels(), folder / "labels");
}

/// A copy of the good data set in <tmp>/bad, changed by `damage`.
Preparation with_damage(const std::function<void(const fs::path&)>& damage) {
    return [damage](const TempDir& folder) {
        copy_train_set(folder / "bad");
        damage(folder / "bad");
    };
}

Preparation with_file(const std::string& name, const std::string& content) {
    return [=](const TempDir& folder) { folder.file(name, content); };
}

// By the names of the cases that need files.
std::map<std::string, Preparation> preparations() {
    return {
        {"ConfigSyntax", with_file("train.toml", "epochs = 2\nlr = = 0.1\n")},
        {"ConfigUnknownKey", with_file("train.toml", "epochs = 2\nmomentm = 0.9\n")},
        {"ConfigWrongType", with_file("train.toml", "batch = \"64\"\n")},
        {"ConfigNotText", with_file("train.toml", "batch = 64 # \xff\n")},
        {"RunCannotBeMade", with_file("file", "")},
        {"RunHasOtherFiles", with_file("home/thesis.tex", "")},
        {"ShardMissing", with_damage([](auto& bad) { fs::remove(shard_of(bad)); })},
        {"ShardIsAZip",
         with_damage([](auto& bad) { overwrite(shard_of(bad), 0, std::string("PK\x03\x04", 4)); })},
        {"ShardCutShort", with_damage([](auto& bad) { fs::resize_file(shard_of(bad), 250'000); })},
        {"ShardOutsideItsFolder", with_damage([](auto& bad) {
             rewrite_manifest(bad,
                              [](Json& json) { json["shards"][0]["path"] = "../../etc/passwd"; });
         })},
        {"ManifestEdited", with_damage([](auto& bad) {
             std::string text = content_of(bad / "manifest.json");
             text.replace(text.find("\"CHW\""), 5, "\"HWC\"");
             std::ofstream(bad / "manifest.json", std::ios::binary) << text;
         })},
        {"ManifestIsNoJson",
         with_damage([](auto& bad) { std::ofstream(bad / "manifest.json") << "{\"format\": \n"; })},
        {"FlippedBit", with_damage(flip_bit_of_last_image)},
        {"VerifyFindsDamage", with_damage(flip_bit_of_last_image)},
        {"PackLabelOutOfRange", copy_inputs},
        {"PackOutputCannotBeMade", copy_inputs},
        {"PackCountsDiffer",
         [](auto& folder) {
             copy_inputs(folder);
             folder.file("labels", idx_text({599}, std::string(599, '\1')));
         }},
        {"PackNotIdx",
         [](auto& folder) {
             for (const char* name : {"images", "labels"}) folder.file(name, "<html>404</html>");
         }},
        {"PackCutShort",
         [](auto& folder) {
             copy_inputs(folder);
             fs::resize_file(folder / "images", 100'000);
         }},
        {"PackOutputExists",
         [](auto& folder) {
             copy_inputs(folder);
             folder.file("out/thesis.tex", "");
         }},
    };
}

// Of bad_inputs.txt: below "# FINDER CODE", each is "NAME: COMMAND", with variables in the command,
// and the message. A line that ends with "\" goes on in the next one.
std::vector<BadInput> bad_inputs() {
    const auto prepared = preparations();
    std::vector<BadInput> found;
    const std::regex begin("([A-Z][A-Za-z]+): (.*)");
    std::smatch parts;
    Words section;
    std::istringstream lines(replaced(content_of(LOCKSTEP_BAD_INPUTS), "\\\n", ""));
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# ")) {
            section = typed(line.substr(2));
        } else if (std::regex_match(line, parts, begin)) {
            found.push_back(
                {.name = parts[1], .finder = section.at(0), .exit_code = std::stoi(section.at(1))});
            if (prepared.contains(parts[1])) found.back().prepare = prepared.at(parts[1]);
            for (const std::string& word : typed(parts[2])) {
                const std::size_t equals = word.find('=');
                if (equals == word.npos)
                    found.back().words.push_back(word);
                else
                    found.back().variables[word.substr(0, equals)] = word.substr(equals + 1);
            }
        } else {
            found.back().message += line + "\n";
        }
    }
    return found;
}

// Three where the message says which ranks found it.
int told_ranks(const BadInput& input) {
    return input.finder == "first_rank" ? 2 : 3;
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
    const bool names_ranks =
        ranks_find_it && (input.finder == "command_line" || input.finder == "every_rank");
    return replaced(input.message, "<same>", names_ranks ? " (same on ranks 1-2)" : "");
}

// What the program says but for what changes from run to run, and for what training showed before.
std::string lasting_part(const BadInput& input, std::string text, const TempDir& folder) {
    text = replaced(std::move(text), train_data().string(), "<data>");
    text = replaced(std::move(text), folder.path().string(), "<tmp>");
    if (input.finder == "some_rank")
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
    const bool ranks_find_it = input.is_training() && input.finder != "command_line";
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
               (input.finder == "command_line" && !of_command_line.contains(input.name));
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
