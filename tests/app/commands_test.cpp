// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string output_of(const std::vector<std::string>& words, const ProcessContext& process = {}) {
    testing::internal::CaptureStdout();
    const int exit_code = run_command(words, process);
    const std::string output = testing::internal::GetCapturedStdout();
    EXPECT_EQ(exit_code, 0) << output;
    return output;
}

/// Visits each option of each command.
void each_option(const std::function<void(const Command&, const Option&)>& visit) {
    for (const Command& command : all_commands())
        for (const OptionSection& section : command.table)
            for (const Option& option : section.options) visit(command, option);
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
    each_option([](const Command& command, const Option& option) {
        EXPECT_FALSE(option.help.empty()) << command.name << " --" << option.name;
        EXPECT_TRUE(std::ranges::all_of(option.name, [](char c) {
            return std::islower(static_cast<unsigned char>(c)) || c == '-' ||
                   std::isdigit(static_cast<unsigned char>(c));
        })) << option.name;
        EXPECT_EQ(option.value.empty(), option.kind == OptionKind::flag) << option.name;
    });
}

TEST(Commands, TakeTheirOwnDefaults) {
    each_option([](const Command& command, const Option& option) {
        if (option.default_value.empty()) return;
        const auto assign = [&] { option.assign({option.default_value, "default"}); };
        EXPECT_EQ(caught_text(assign), "") << command.name << " --" << option.name;
    });
}

// The reference shows each group once.
TEST(Commands, TakeAGroupOfOptionsAsAllOthersDo) {
    std::map<std::string, std::string> groups;
    std::size_t takers = 0;
    for (const Command& command : all_commands())
        for (const OptionSection& section : command.table) {
            if (std::ranges::find(group_titles, section.title) == group_titles.end()) continue;
            const auto [first, is_new] = groups.emplace(section.title, options_help({section}));
            EXPECT_EQ(options_help({section}), first->second) << command.name;
            ++takers;
        }
    EXPECT_EQ(groups.size(), group_titles.size());
    EXPECT_GT(takers, 2 * groups.size());
}

TEST(Commands, TakeOnlyTheWordsOfAChoice) {
    std::size_t choices = 0;
    each_option([&](const Command& command, const Option& option) {
        if (option.words.empty()) return;
        const std::string where = command.name + " --" + option.name;
        const bool is_list = option.kind == OptionKind::list;
        ++choices;
        EXPECT_EQ(option.value,
                  is_list ? "NAME[,NAME]" : fmt::format("{}", fmt::join(option.words, "|")))
            << where;
        const auto assign = [&] { option.assign({"nothing", "test"}); };
        EXPECT_EQ(caught_code(assign), "E103") << where;
        for (const std::string& word : option.words) {
            option.assign({word, "test"});
            EXPECT_EQ(config_text(option.current()), word) << where;
        }
    });
    EXPECT_GT(choices, 30u);
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

TEST(Explain, KnowsEveryCheckOfTheDoctor) {
    for (const DoctorCheck& check : doctor_checks())
        EXPECT_EQ(output_of({"explain", std::string(check.id)}),
                  fmt::format("{}: {} ({} of 'lockstep doctor')\n\n{}\nfix: {}\n",
                              check.id,
                              check.title,
                              severity_name(check.severity),
                              check.why,
                              check.fix));
    EXPECT_EQ(output_of({"explain", "c2"}), output_of({"explain", "C2"}));
}

TEST(Explain, TakesLowerCaseAndExitCodes) {
    EXPECT_EQ(output_of({"explain", "e306"}), output_of({"explain", "E306"}));
    EXPECT_THAT(output_of({"explain", "75"}),
                StartsWith("exit code 75: saved after a signal or before --deadline, or told to "
                           "end before anything began: please requeue\nanother start: goes "
                           "on\n"));
    EXPECT_THAT(output_of({"explain", "78"}), HasSubstr(" E306"));
    EXPECT_THAT(output_of({"explain", "137"}), HasSubstr("killed by signal 9 (Killed)"));
    EXPECT_THAT(output_of({"explain", "135"}), HasSubstr("a host has no folder of this name"));
    EXPECT_THAT(output_of({"explain", "205"}), HasSubstr("exit code 205: mpirun lost a daemon"));
    for (const char* code : {"E999", "2", "200", "-75", "99999999999"})
        EXPECT_EQ(caught_code([&] { run_command({"explain", code}, {}); }), "E101") << code;
}

TEST(RunCommand, SpeaksOfAUsersOwnProgramAndModel) {
    const ProcessContext process{{.model = "tiny", .name = "mine"}, {}};
    const std::string help = output_of({"train", "--help"}, process);
    EXPECT_THAT(help, HasSubstr("\nusage: mine train --data DIR"));
    EXPECT_THAT(help, HasSubstr("tiny, or built-in ('lockstep models'), plug-in"));
    EXPECT_THAT(output_of({"config", "show"}, process), HasSubstr("model = \"tiny\"\n"));
    EXPECT_THAT(output_of({"config", "show", "--model", "mlp"}, process),
                HasSubstr("model = \"mlp\"\n"));
    EXPECT_THAT(output_of({"config", "show"}), HasSubstr("model = \"cnn\"\n"));
    EXPECT_THAT(output_of({}, process), Not(HasSubstr("submit")));
    EXPECT_EQ(caught_code([&] { run_command({"submit"}, process); }), "E101");
}

TEST(RankProgram, IsThisOneWhereItCanTrain) {
    const auto train = [](const TrainSettings&, const Communicator&) { return TrainResult(); };
    EXPECT_EQ(rank_program({.train = train}), this_executable());
    EXPECT_EQ(rank_program({}), fs::path(this_executable()).replace_filename("lockstep-train"));
}

TEST(RunCommand, RefusesWhatItDoesNotKnow) {
    EXPECT_EQ(caught_code([] { run_command({"trian"}, {}); }), "E101");
    EXPECT_EQ(caught_code([] { run_command({"explain"}, {}); }), "E105");
    EXPECT_EQ(caught_code([] { run_command({"explain", "E204", "E205"}, {}); }), "E101");
    EXPECT_EQ(caught_code([] { run_command({"train"}, {}); }), "E105");
}

}  // namespace
}  // namespace lockstep
