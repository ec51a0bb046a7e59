// SPDX-License-Identifier: Apache-2.0
// What commands that last show of their progress: on a terminal, a narrow one, one without escapes.
#include "lockstep/core/shell_word.hpp"

#include "program.hpp"

namespace lockstep::test {
namespace {

/// `lockstep WORDS` on a terminal of so many columns.
ProcessResult run_on_terminal(const Words& words, int columns, const char* kind) {
    const std::string line = fmt::format(
        "stty rows 24 cols {} && exec {}", columns, shell_text(Words{program()} + words));
    return run_process(
        {"script", "--quiet", "--return", "--command", line, "/dev/null"}, {{"TERM", kind}}, 100);
}

/// The live lines: what stands on a line when it is wiped.
std::vector<std::string> live_lines(const std::string& shown) {
    const std::string wipe = "\r\x1b[K";
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t at = 0; (at = shown.find(wipe, begin)) != shown.npos;
         begin = at + wipe.size()) {
        const std::string before = shown.substr(begin, at - begin);
        lines.push_back(before.substr(before.rfind('\n') + 1));
    }
    return lines;
}

/// A data set, a run and the commands on them, by name.
class Lasting : public testing::Test {
  protected:
    static Words train(const fs::path& run) {
        return train_words(train_data(), run, "mlp", 48) + Words{"--max-steps", "4"};
    }

    static std::map<std::string, Words> commands(const std::string& mark) {
        static const TempDir folder;
        static const std::string trained = output_of(run_lockstep(train(folder / "run")));
        const std::string data = train_data(), run = folder / "run";
        const auto out = [&](const std::string& name) { return folder / (name + mark); };
        return {
            {"pack", {"data", "synth", "--samples", "500", "--out", out("synth")}},
            {"verify data", {"data", "verify", data}},
            {"reshard", {"data", "reshard", data, "--out", out("reshard")}},
            {"export data", {"data", "export", data, "--out", out("export")}},
            {"stage", {"data", "stage", data, "--to", out("stage")}},
            {"verify checkpoints", {"ckpt", "verify", run}},
            {"export weights", {"export", run, "--out", out("weights")}},
            {"eval", {"eval", run, "--data", data}},
            {"predict",
             {"predict", run, "--data", data, "--out", folder / ("outputs" + mark + ".npy")}},
            {"bench io",
             Words{"bench", "io", "--data", data, "--threads", "1", "--cache", "hot"} +
                 Words{"--rounds", "1", "--pass", "1MiB"}},
            {"bench comm",
             Words{"bench", "comm", "--np", "2", "--oversubscribe", "-b", "4KiB", "-e", "8KiB"} +
                 Words{"--beside", "none", "--rounds", "1"}},
            {"verify ranks",
             Words{"verify", "--data", data, "--ranks", "1,2", "--steps", "2"} +
                 Words{"--model", "mlp", "--batch", "48"}},
            {"train", train(out("run")) + on_ranks(2)}};
    }
};

TEST_F(Lasting, ShowOneLiveLineThatFitsTwentyColumns) {
    for (const auto& [name, words] : commands("-narrow")) {
        SCOPED_TRACE(name);
        const ProcessResult result = run_on_terminal(words, 20, "xterm");
        EXPECT_EQ(result.exit_code, 0) << result.output;
        const auto lines = live_lines(result.output);
        EXPECT_THAT(lines, testing::Contains(has(" % "))) << result.output;
        EXPECT_THAT(lines, testing::Each(testing::SizeIs(testing::Le(19u)))) << result.output;
        std::string rest = result.output;
        for (std::size_t at = 0; (at = rest.find("\r\x1b[K")) != rest.npos;) rest.erase(at, 4);
        EXPECT_EQ(rest.find('\x1b'), rest.npos) << result.output;
    }
}

TEST_F(Lasting, ShowNoControlCharacterOnADumbTerminal) {
    const auto all = commands("-dumb");
    for (const std::string name : {"pack", "verify checkpoints", "bench comm"}) {
        SCOPED_TRACE(name);
        const ProcessResult result = run_on_terminal(all.at(name), 80, "dumb");
        EXPECT_EQ(result.exit_code, 0) << result.output;
        EXPECT_EQ(result.output.find('\x1b'), result.output.npos) << result.output;
        for (std::size_t at = 0; (at = result.output.find('\r', at)) != result.output.npos; ++at)
            ASSERT_EQ(result.output[at + 1], '\n') << result.output;
    }
}

TEST_F(Lasting, ShowNoControlCharacterInAFile) {
    const auto all = commands("-file");
    for (const std::string name : {"pack", "verify checkpoints"}) {
        SCOPED_TRACE(name);
        const std::string result = output_of(run_lockstep(all.at(name), {{"TERM", "xterm"}}));
        EXPECT_EQ(result.find_first_of("\r\x1b"), result.npos) << result;
    }
}

}  // namespace
}  // namespace lockstep::test
