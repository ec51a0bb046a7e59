// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "command.hpp"
#include "program.hpp"
#include "support/caught.hpp"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string output_of(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    const int exit_code = run_command(words, {});
    const std::string output = testing::internal::GetCapturedStdout();
    EXPECT_EQ(exit_code, 0) << output;
    return output;
}

TEST(Commands, HaveNamesSummariesAndUsage) {
    std::set<std::string> names;
    for (const Command& command : all_commands()) {
        EXPECT_TRUE(names.insert(command.name).second) << command.name << " is there twice";
        EXPECT_FALSE(command.summary.empty()) << command.name;
        EXPECT_TRUE(command.usage.starts_with("lockstep " + command.name)) << command.usage;
        EXPECT_TRUE(command.text.ends_with('\n')) << command.name;
    }
}

TEST(Commands, HaveOptionsThatCanBeSetFromAnySource) {
    for (const Command& command : all_commands())
        for (const OptionSection& section : command.table)
            for (const Option& option : section.options) {
                EXPECT_FALSE(option.help.empty()) << command.name << " --" << option.name;
                EXPECT_TRUE(std::ranges::all_of(option.name, [](char c) {
                    return std::islower(static_cast<unsigned char>(c)) || c == '-' ||
                           std::isdigit(static_cast<unsigned char>(c));
                })) << option.name;
                EXPECT_EQ(option.value.empty(), option.kind == OptionKind::flag) << option.name;
            }
}

TEST(Commands, TakeTheirOwnDefaults) {
    for (const Command& command : all_commands())
        for (const OptionSection& section : command.table)
            for (const Option& option : section.options) {
                if (option.default_value.empty()) continue;
                const auto assign = [&] { option.assign({option.default_value, "default"}); };
                EXPECT_EQ(test::caught_text(assign), "") << command.name << " --" << option.name;
            }
}

TEST(Explain, KnowsEveryCode) {
    for (const ErrorEntry& entry : error_catalog())
        EXPECT_EQ(output_of({"explain", std::string(entry.code)}),
                  fmt::format("{}: {} (exit code {})\n\n{}\n",
                              entry.code,
                              entry.title,
                              static_cast<int>(entry.exit_code),
                              entry.text));
}

TEST(RunCommand, RefusesWhatItDoesNotKnow) {
    EXPECT_EQ(test::caught_code([] { run_command({"trian"}, {}); }), "E101");
    EXPECT_EQ(test::caught_code([] { run_command({"explain"}, {}); }), "E105");
    EXPECT_EQ(test::caught_code([] { run_command({"explain", "E204", "E205"}, {}); }), "E101");
    EXPECT_EQ(test::caught_code([] { run_command({"train"}, {}); }), "E105");
}

}  // namespace
}  // namespace lockstep
