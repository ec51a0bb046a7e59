// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/known_faults.hpp"
#include "lockstep/core/record.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <set>
#include <stdexcept>
#include <system_error>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> options{"--batch-size", "--epochs", "--data", "--lr", "--model"};

TEST(Error, LooksAsTheDesignHasIt) {
    const Error error("E204",
                      "'train-007.h5' is cut short: 265,612 of 531,224 bytes",
                      "the writer or a copy was interrupted",
                      "copy it again, then `lockstep data verify DIR`");
    EXPECT_EQ(error.text(),
              "lockstep: error E204: 'train-007.h5' is cut short: 265,612 of 531,224 bytes\n"
              "  why: the writer or a copy was interrupted\n"
              "  fix: copy it again, then `lockstep data verify DIR`");
    EXPECT_EQ(error.exit_code(), ExitCode::bad_data);
    EXPECT_EQ(Error("E402", "cannot write", "", "try again").text(),
              "lockstep: error E402: cannot write\n  fix: try again")
        << "what it does not know is left out";
    EXPECT_EQ(Error("E402", "cannot write").text("same on ranks 1-3"),
              "lockstep: error E402: cannot write (same on ranks 1-3)");
}

TEST(Error, ExitsAsTheChildThatCausedIt) {
    EXPECT_EQ(Error("E705", "failed").exit_code(), ExitCode::bug);
    EXPECT_EQ(Error("E705", "failed").exiting_as(78).exit_code(), ExitCode::config);
    EXPECT_EQ(Error("E705", "failed").exiting_as(139).exit_code(), ExitCode::bug)
        << "no error ends so";
    EXPECT_EQ(Error("E705", "failed").exiting_as(0).exit_code(), ExitCode::bug);
    EXPECT_EQ(Error("E999", "?").exit_code(), ExitCode::bug) << "of an unknown code";
}

TEST(Error, MakesNoLineOfItsOwnOfALineFeedInANameAndLetsNoTerminalEscapeThrough) {
    EXPECT_EQ(Error("E201", "no 'a\n  fix: run this'", "b\nlockstep: all is well", "c").text(),
              "lockstep: error E201: no 'a   fix: run this'\n"
              "  why: b\n    lockstep: all is well\n  fix: c");
    const Error unexpected = as_error(std::runtime_error("first\nsecond"));
    EXPECT_STREQ(unexpected.what(), "first");
    EXPECT_THAT(unexpected.why(), HasSubstr("\nsecond"));
    const auto text = Error("E101", "unknown \033]0;x\007", "line one\n    line\ttwo", "\r").text();
    EXPECT_EQ(text,
              "lockstep: error E101: unknown ?]0;x?\n  why: line one\n    line\ttwo\n  fix: ?");
}

TEST(ErrorCatalog, IsSortedAndCompleteAndHasEachCodeOnce) {
    const auto catalog = error_catalog();
    EXPECT_TRUE(std::ranges::is_sorted(catalog, {}, &ErrorEntry::code));
    std::set<std::string_view> codes;
    for (const auto& entry : catalog) {
        EXPECT_TRUE(codes.insert(entry.code).second) << entry.code;
        EXPECT_EQ(entry.code.size(), 4u) << entry.code;
        EXPECT_FALSE(entry.title.empty()) << entry.code;
        EXPECT_TRUE(entry.text.ends_with('.')) << entry.code;
        EXPECT_EQ(find_error(entry.code), &entry);
    }
    EXPECT_EQ(find_error("E000"), nullptr);
}

TEST(Check, ThrowsWhatItIsGivenAndOnlyThen) {
    int made = 0;
    const auto make = [&] {
        ++made;
        return Error("E102", "x");
    };
    check(true, make);
    EXPECT_EQ(made, 0);
    EXPECT_EQ(caught_code([&] { check(false, make); }), "E102");
    check(true, "E103", "a");
    EXPECT_EQ(caught_text([] { check(false, "E103", "a", "b", "c"); }),
              Error("E103", "a", "b", "c").text());
}

TEST(Expect, NamesClaimAndPlace) {
    EXPECT_NO_THROW(expect(true, "fine"));
    const Error error = test::error_of([] { expect(false, "one is two"); });
    EXPECT_EQ(error.code(), "E700");
    EXPECT_THAT(error.what(), HasSubstr("'one is two' does not hold"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:"));
}

TEST(SystemError, ChoosesTheCodeByErrno) {
    EXPECT_EQ(system_error("open", "x", ENOENT).exit_code(), ExitCode::missing_input);
    EXPECT_EQ(system_error("open", "x", EACCES).exit_code(), ExitCode::permission);
    EXPECT_EQ(system_error("write", "x", ENOSPC).exit_code(), ExitCode::cannot_create);
    EXPECT_EQ(system_error("write", "x", EFBIG).fix(),
              "raise the limit of a file's size: ulimit -f unlimited");
    EXPECT_EQ(system_error("read", "x", EIO).exit_code(), ExitCode::io);
    EXPECT_EQ(system_error("map", "x", ENOMEM).code(), "E225");
    EXPECT_STREQ(system_error("map", "x", ENOMEM).what(),
                 "the system refuses this process memory: it cannot map 'x'");
    EXPECT_STREQ(system_error("open", "a/b", ENOENT).what(),
                 "cannot open 'a/b': No such file or directory");
}

TEST(AsError, KnowsRefusedMemory) {
    const std::bad_alloc from_new;
    const std::system_error from_thread(
        std::make_error_code(std::errc::resource_unavailable_try_again));
    const std::runtime_error from_torch(
        "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 8294400 bytes. Error code 12 (Cannot allocate memory)");
    for (const std::exception* error :
         std::initializer_list<const std::exception*>{&from_new, &from_thread, &from_torch}) {
        EXPECT_EQ(as_error(*error).code(), "E225") << error->what();
        EXPECT_NE(as_error(*error).fix().find("ulimit -v"), std::string::npos);
    }
    EXPECT_NE(as_error(from_torch).text().find(": 8294400 bytes were asked for"),
              std::string::npos);
    EXPECT_STREQ(as_error(RefusedMemory(3 << 20)).what(),
                 "the system refuses this process memory: 3 MiB were asked for");
    EXPECT_EQ(as_error(std::runtime_error("x")).code(), "E700");
}

TEST(NearestName, FindsTypingErrorsPrefersANameThatBeginsSoAndSuggestsNothingFarFetched) {
    EXPECT_EQ(nearest_name("--epcohs", options), "--epochs");
    EXPECT_EQ(nearest_name("--datas", options), "--data");
    EXPECT_EQ(nearest_name("--batchsize", options), "--batch-size");
    EXPECT_EQ(did_you_mean("--bach-size", options), "did you mean '--batch-size'?");
    EXPECT_EQ(nearest_name("adamW", std::vector<std::string>{"adam", "adamw"}), "adamw");
    const std::vector<std::string> names = {"--width", "--virtual-ranks", "--virtual", "--lr"};
    EXPECT_EQ(nearest_name("--virt", {names.data(), 2}), "--virtual-ranks");
    EXPECT_EQ(nearest_name("--virt", names), "--virtual");
    EXPECT_EQ(nearest_name("--l", names), "--lr") << "short beginnings mean little";
    EXPECT_EQ(nearest_name("--quantum-tunnel", options), "");
    EXPECT_EQ(nearest_name("q", std::vector<std::string>{"lr", "np"}), "");
    EXPECT_EQ(nearest_name("", options), "");
    EXPECT_EQ(nearest_name("--lr", {}), "");
    EXPECT_EQ(did_you_mean("--quantum-tunnel", options), "");
}

TEST(FoldRanks, WritesRanges) {
    EXPECT_EQ(fold_ranks(std::vector{0, 1, 2, 5}), "0-2,5");
    EXPECT_EQ(fold_ranks(std::vector{7}), "7");
    EXPECT_EQ(fold_ranks({}), "");
    EXPECT_EQ(fold_ranks(std::vector{0, 2, 4, 5}), "0,2,4-5");
}

RC_GTEST_PROP(NearestName, FindsEveryNameWithOneLetterLost, ()) {
    const auto name = *rc::gen::elementOf(options);
    const auto at = *rc::gen::inRange<std::size_t>(2, name.size());
    auto typed = name;
    typed.erase(at, 1);
    RC_PRE(name.size() > 4);
    RC_ASSERT(nearest_name(typed, options) == name);
}

TEST(ErrorBytes, GiveTheSameError) {
    const Error error("E310", "what", "", "fix it\nor \xff not");
    const Error back = error_from_bytes(error_bytes(error));
    EXPECT_EQ(back.text(), error.text());
    EXPECT_EQ(back.exit_code(), error.exit_code());
    EXPECT_EQ(caught_code([] { static_cast<void>(error_from_bytes("E310")); }), "E222");
}

TEST(ErrorKind, NamesWhatCallersActOnAndWhoseDoingItIsByCodesOfTheCatalogue) {
    EXPECT_EQ(kind_of(Error("E632", "no room")), ErrorKind::no_shared_memory);
    EXPECT_EQ(kind_of(Error("E201", "no file")), ErrorKind::file_missing);
    EXPECT_EQ(kind_of(Error("E213", "wrong hash")), ErrorKind::data_damaged);
    EXPECT_EQ(kind_of(Error("E101", "a word")), ErrorKind::other);
    EXPECT_EQ(blame_of_code("E204"), Blame::own);
    EXPECT_EQ(blame_of_code("E660"), Blame::peer);
    EXPECT_EQ(blame_of_code("E682"), Blame::peer);
    EXPECT_EQ(blame_of_code("E620"), Blame::unsure);
    const auto with_kind = std::ranges::count_if(error_catalog(), [](const ErrorEntry& entry) {
        return kind_of(Error(entry.code, "")) != ErrorKind::other;
    });
    EXPECT_EQ(with_kind, 24) << "a code in error_kind.cpp that error_catalog.cpp does not have";
}

std::string words(const SoftwareVersions& versions) {
    std::string text;
    for (const auto& fault : known_faults(versions)) {
        EXPECT_FALSE(fault.source.empty()) << fault.what;
        text += fault.what + ": " + fault.fix;
    }
    return text;
}

TEST(KnownFaults, ReadVersionsAsTheirProgramsWriteThem) {
    EXPECT_EQ(version_number("slurm 25.05.3"), 250503);
    EXPECT_EQ(version_number("slurm-wlm 22.05.8"), 220508);
    EXPECT_EQ(version_number("26.05.0-0rc1"), 260500);
    EXPECT_EQ(version_number("OpenPMIx 5.0.8, repo rev: v5.0.8"), 50008);
    EXPECT_EQ(version_number("5.0.11rc1"), 50011);
    EXPECT_EQ(version_number("2.28"), 22800);
    for (const char* none : {"", "2", "git", "v-1"}) EXPECT_EQ(version_number(none), 0) << none;
}

TEST(KnownFaults, OfNcclAlsoOnArm) {
    const auto of = [](int version, bool has_several_hosts, bool disables_pxn = false) {
        return words({.nccl = version,
                      .has_several_hosts = has_several_hosts,
                      .disables_pxn = disables_pxn,
                      .is_arm = false});
    };
    for (const int version : {0, 22703, 22802, 22809, 22901, 22903, 23003, 23007})
        EXPECT_EQ(of(version, false), "") << version;
    for (const int version : {22803, 22808})
        EXPECT_THAT(of(version, false), HasSubstr("hang or crash: use 2.28.9 or later")) << version;
    EXPECT_EQ(of(22902, false), "NCCL 2.29.2 is known to hang: use 2.29.3 or later");
    EXPECT_THAT(of(23003, true), HasSubstr("NCCL 2.30.3 may hang between nodes with InfiniBand"));
    EXPECT_EQ(of(23003, true, true), "");
    for (const int version : {22703, 22809, 22901})
        EXPECT_THAT(words({.nccl = version, .is_arm = true}),
                    HasSubstr("may hang on processors of Arm: use 2.29.3 or later"))
            << version;
    EXPECT_EQ(words({.nccl = 22903, .is_arm = true}), "");
}

TEST(KnownFaults, OfPmixUnderSlurm) {
    for (const int pmix : {50008, 50009})
        for (const int slurm : {220508, 250503, 251101})
            EXPECT_THAT(words({.pmix = pmix, .slurm = slurm}),
                        HasSubstr("hangs in MPI_Init under srun of Slurm before 25.11.2: start the "
                                  "ranks by mpirun"));
    // Slurm 0: mpirun starts the ranks.
    for (const auto& [pmix, slurm] : {std::pair{50008, 251102},
                                      {50008, 260500},
                                      {50008, 0},
                                      {50007, 250503},
                                      {50010, 250503},
                                      {40202, 220508}})
        EXPECT_EQ(words({.pmix = pmix, .slurm = slurm}), "") << pmix << " " << slurm;
}

}  // namespace
}  // namespace lockstep
