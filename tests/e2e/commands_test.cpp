// SPDX-License-Identifier: Apache-2.0
// The commands that show and explain: data inspect and verify, map, config, version, --help.
#include "lockstep/core/split.hpp"

#include "program.hpp"

#include <sstream>

namespace lockstep::test {
namespace {

std::string printed_by(const Words& words, const Variables& environment = {}) {
    return output_of(run_lockstep(words, environment));
}

class Commands : public RunsTest {};

TEST_F(Commands, FindAWholeDataSetWhole) {
    const std::string folder = train_data();
    EXPECT_THAT(printed_by({"data", "verify", folder}),
                EndsWith(fmt::format("'{}' is whole\n", folder)));
}

// Its registries take 0.3 s of each command, and 440 MiB of addresses.
TEST_F(Commands, StartWithoutLibTorch) {
    const Variables list = {{"LD_TRACE_LOADED_OBJECTS", "1"}};  // the loader's, as ldd does
    EXPECT_THAT(printed_by({}, list), has("libhdf5", Not(has("torch"))));
    EXPECT_THAT(run_process({program() + "-train"}, list), says("libtorch_cpu.so"));
}

std::string shown(const std::string& setting, const std::string& origin) {
    return fmt::format("{:<40} # {}\n", setting, origin);
}

TEST_F(Commands, ShowWhereSettingsComeFrom) {
    const std::string config =
        folder_.file("train.toml", "batch = 1\nepochs = 2\nlr = 0.5\n").string();
    const std::string text =
        printed_by({"config", "show", "--origin", "--config", config, "--batch", "3"},
                   {{"LOCKSTEP_BATCH", "2"}, {"LOCKSTEP_EPOCHS", "7"}});
    EXPECT_THAT(text, has(shown("batch = 3", "command line")));
    EXPECT_THAT(text, has(shown("epochs = 7", "LOCKSTEP_EPOCHS")));
    EXPECT_THAT(text, has(shown("lr = 0.5", config + ":3:6")));
    EXPECT_THAT(text, has(shown("momentum = 0.9", "default"), shown("# data = \"\"", "default")));
}

TEST_F(Commands, WarnOfAVariableThatNothingReads) {
    EXPECT_THAT(
        run_lockstep({"config", "show"}, {{"LOCKSTEP_LRR", "0.02"}}),
        ends(0, "warn: LOCKSTEP_LRR is no variable of Lockstep: did you mean LOCKSTEP_LR?\n"));
    const Words words = train_words(train_data(), folder_.path() / "run", "mlp", 24);
    const auto run = run_lockstep(words + Words{"--max-steps", "1"}, {{"LOCKSTEP_LRR", "0.02"}});
    EXPECT_EQ(run.exit_code, 0) << run.output;
    const std::size_t said = run.output.find("LOCKSTEP_LRR");
    EXPECT_NE(said, std::string::npos);
    EXPECT_EQ(run.output.find("LOCKSTEP_LRR", said + 1), std::string::npos)
        << "lockstep-train again";
}

TEST_F(Commands, ShowSettingsAsAFileThatIsRead) {
    const fs::path first = folder_.file("a.toml", "batch = 1\ndata = \"some, \\\"data\\\"\"\n");
    const std::string shown = printed_by({"config", "show", "--config", first});
    const std::string file = folder_.file("b.toml", shown).string();
    EXPECT_EQ(printed_by({"config", "check", file}), fmt::format("'{}' is fine\n", file));
    std::string again = printed_by({"config", "show", "--config", file});
    const std::size_t at = again.find("b.toml");
    ASSERT_NE(at, again.npos) << again;
    EXPECT_EQ(again.replace(at, 1, "a"), shown);
}

TEST_F(Commands, TakeTheUsersFileOverTheSites) {
    make_directories(folder_.path() / "lockstep");
    const std::string user =
        folder_.file("lockstep/config.toml", "[train]\nlr = 0.5\nbatch = 64\n").string();
    const std::string site =
        folder_.file("site.toml", "[train]\nlr = 0.25\nepochs = 3\n[bench.comm]\nmin-bytes = 64\n")
            .string();
    const Variables variables = {{"XDG_CONFIG_HOME", folder_.path()},
                                 {"LOCKSTEP_SITE_CONFIG", site}};
    const std::string text = printed_by({"config", "show", "--origin", "--batch", "3"}, variables);
    EXPECT_THAT(text, has(shown("batch = 3", "command line")));
    EXPECT_THAT(text, has(shown("lr = 0.5", user + ":2:6"), shown("epochs = 3", site + ":3:10")));
    EXPECT_EQ(printed_by({"config", "check", site}), fmt::format("'{}' is fine\n", site));
}

// A file of what `generate-manual` makes.
fs::path in_manual(const fs::path& name) {
    static const TempDir folder;
    if (fs::is_empty(folder.path())) printed_by({"generate-manual", folder.path()});
    return folder / name;
}

TEST_F(Commands, AreAsTheReferenceSays) {
    EXPECT_TRUE(content_of(in_manual("doc/lockstep/reference.md")) ==
                content_of(LOCKSTEP_REFERENCE))
        << "docs/reference.md is stale; docs/CONTRIBUTING.md says how it is made";
}

TEST_F(Commands, WriteTheirManualIntoNoRun) {
    folder_.file("run.json", "{}");
    EXPECT_THAT(run_lockstep({"generate-manual", folder_.path()}),
                ends(64, "E407", "holds other files, such as 'run.json'"));
    EXPECT_FALSE(fs::exists(folder_ / "man"));
    fs::create_directories(folder_ / "share" / "applications");
    EXPECT_THAT(printed_by({"generate-manual", folder_ / "share"}),
                has((folder_ / "share/man/man1/lockstep.1").string()));
    printed_by({"generate-manual", folder_ / "share"});
    EXPECT_THAT(run_lockstep({"generate", folder_.path()}),
                says("E101: unknown command 'generate'\n  fix: see 'lockstep --help'"));
}

TEST_F(Commands, AreCompletedByBash) {
    const auto completed = [&](const std::string& words) {
        const std::string script = fmt::format(
            "source {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _lockstep; "
            "echo ${{COMPREPLY[*]}}",
            in_manual("bash-completion/completions/lockstep").string(),
            words);
        return run_process({"bash", "-c", script}).output;
    };
    EXPECT_EQ(completed("lockstep ver"), "verify version\n");
    EXPECT_EQ(completed("lockstep config c"), "check\n");
    EXPECT_EQ(completed("lockstep train --opt"), "--optimizer\n");
    EXPECT_EQ(completed("lockstep train --optimizer s"), "sgd\n");
    EXPECT_EQ(completed("lockstep bench comm --min-b"), "--min-bytes --min-busbw\n");
    EXPECT_EQ(completed("lockstep bench comm --split int"), "intra inter\n");
}

// What `script` prints in `shell`.
std::string printed_by(const std::string& shell, const std::string& script) {
    const TempDir home;
    const Variables own = {
        {"HOME", home.path()}, {"XDG_CONFIG_HOME", home.path()}, {"XDG_DATA_HOME", home.path()}};
    return output_of(run_process({shell, "-c", script}, own));
}

TEST_F(Commands, AreCompletedByFish) {
    const fs::path file = in_manual("fish/vendor_completions.d/lockstep.fish");
    EXPECT_THAT(content_of(file),
                has("complete -c lockstep -n '__lockstep_is bench comm' -l split -x -a "
                    "'all intra inter' -d '"));
    if (find_program("fish").empty()) GTEST_SKIP() << "no fish here: scripts/setup test";
    const auto expect_completed = [&](const std::string& words, const std::string& expected) {
        const auto printed = printed_by(
            "fish", fmt::format("source {}; complete -C '{}' | cut -f1", file.string(), words));
        EXPECT_EQ(printed, expected) << words;
    };
    expect_completed("lockstep ver", "verify\nversion\n");
    expect_completed("lockstep config c", "check\n");
    expect_completed("lockstep train --opt", "--optimizer\n");
    expect_completed("lockstep train --optimizer s", "sgd\n");
    expect_completed("lockstep bench comm --min-b", "--min-busbw\n--min-bytes\n");
}

// zsh completes at a terminal only: its two words for it show here what they are given.
TEST_F(Commands, AreCompletedByZsh) {
    const fs::path file = in_manual("zsh/site-functions/_lockstep");
    EXPECT_THAT(content_of(file), StartsWith("#compdef lockstep\n"));
    const std::string smallest = "[smallest buffer]:value: ";
    EXPECT_THAT(content_of(file),
                has("'--min-bytes" + smallest + "' \\\n            '-b" + smallest));
    EXPECT_THAT(content_of(file), has(":word:(all intra inter)'"));
    if (find_program("zsh").empty()) GTEST_SKIP() << "no zsh here: scripts/setup test";
    const auto expect_offered = [&](const std::string& words, const std::string& expected) {
        const auto printed = printed_by(
            "zsh",
            fmt::format(
                "compadd() {{ print -r -- $@ }}; _arguments() {{ print -rl -- \"$words\" $@ "
                "}}; words=({}); CURRENT=$#words; completion() {{ source {} }}; completion",
                words,
                file.string()));
        EXPECT_THAT(printed, has(expected)) << words;
    };
    expect_offered("lockstep ver", " verify version\n");
    expect_offered("lockstep config c", "check show\n");
    expect_offered("lockstep train --opt", "train --opt\n*--data[training data: ");
    expect_offered("lockstep bench comm --t",
                   "comm --t\n--min-bytes[smallest buffer]:value: \n-b[");
}

TEST_F(Commands, HaveAManualPageWithoutMistakes) {
    const fs::path page = in_manual("man/man1/lockstep.1");
    EXPECT_THAT(content_of(page), has("\n.B \\-\\-batch N\n"));
    if (find_program("groff").empty()) GTEST_SKIP() << "no groff here: scripts/setup test";
    EXPECT_THAT(run_process({"groff", "-man", "-Tascii", "-ww", "-z", page.string()}),
                says(testing::Eq("")));
}

TEST_F(Commands, CheckAConfigurationFile) {
    const fs::path bad = folder_.file("bad.toml", "batsch = 64\n");
    EXPECT_THAT(run_lockstep({"config", "check", bad}), ends(78, "did you mean 'batch'?"));
}

TEST_F(Commands, SayTheirVersions) {
    EXPECT_THAT(printed_by({"version"}),
                MatchesRegex("lockstep [0-9.]+[^\n]*\nlibtorch [0-9.]+\nOpen MPI [^\n]*\n.*"));
    EXPECT_EQ(printed_by({"--version"}), printed_by({"version"}));
}

// The machine says whether it has one, not the program that is tested.
TEST_F(Commands, DoNotAlarmWithoutAGpu) {
    const auto pci = run_process({"bash", "-c", "cat /sys/bus/pci/devices/*/vendor"});
    if (pci.output.find("0x10de") != pci.output.npos || fs::exists("/dev/nvidiactl"))
        GTEST_SKIP() << "SKIPPED: there is a GPU here";
    EXPECT_THAT(printed_by({"version"}), EndsWith("\ngpu none (no driver)\n"));
}

TEST_F(Commands, OfAGroupAreListed) {
    const std::string text = printed_by({"data", "--help"});
    EXPECT_THAT(text, has("usage: lockstep data COMMAND", "\n  data pack ", Not(has("train"))));
    EXPECT_EQ(printed_by({"data", "help"}), text);
    EXPECT_THAT(run_lockstep({"dato", "--help"}), ends(64));
    EXPECT_THAT(run_lockstep({"data", "look", "."}), says("fix: lockstep data inspect"));
}

// The commands that the program's own help lists.
std::vector<std::string> listed_commands() {
    std::istringstream lines(printed_by({"--help"}));
    std::vector<std::string> commands;
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with("  ") && !line.starts_with("   "))
            commands.push_back(line.substr(2, line.find("  ", 2) - 2));
    return commands;
}

TEST_F(Commands, AreAllListed) {
    EXPECT_EQ(printed_by({}), printed_by({"--help"}));
    EXPECT_THAT(listed_commands(),
                testing::IsSupersetOf(
                    split("train,verify,data pack,data synth,data inspect,data export,data verify,"
                          "diagnose,ckpt ls,ckpt verify,bench comm,config show,config check,"
                          "explain,version",
                          ',')));
}

TEST_F(Commands, TeachThemselves) {
    constexpr std::size_t widest = 110;
    for (const std::string& command : listed_commands()) {
        const std::string text = printed_by(typed(command) + Words{"--help"});
        EXPECT_THAT(text, has("\nusage: lockstep " + command)) << command;
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(line.size(), widest) << command << ": " << line;
        EXPECT_EQ(printed_by(typed(command) + Words{"-h"}), text);
    }
}

TEST_F(Commands, ShowExamplesWhereThereIsMuchToKnow) {
    for (const char* command : {"train", "verify", "data pack", "data synth", "bench comm"}) {
        const std::string text = printed_by(typed(command) + Words{"--help"});
        EXPECT_THAT(text, ContainsRegex("Examples?:\n  lockstep " + typed(command).front()));
        EXPECT_THAT(text, has("\n  --")) << "no options";
    }
    EXPECT_THAT(printed_by({"train", "--help"}), has("global batch"));
    EXPECT_THAT(printed_by({"train", "--help"}), has("[128]")) << "defaults are shown";
}

TEST(Profile, CountsTheWorkOfAModelsStep) {
    const Json found = parse_json(
        printed_by({"profile", "mlp", "--batch", "8", "--steps", "2", "--json"}), "profile");
    const std::uint64_t first = 2 * 8 * 784 * 256, second = 2 * 8 * 256 * 10;
    EXPECT_EQ(found.at("flops"), 2 * first + 3 * second);
    EXPECT_EQ(found.at("parameters"), 203'530);
    EXPECT_EQ(found.at("output"), Json({8, 10}));
    EXPECT_EQ(found.at("layers").size(), 2U);
    EXPECT_EQ(found.at("layers")[0].at("output"), Json({8, 256}));
    EXPECT_GT(found.at("peak_bytes").get<std::uint64_t>(),
              found.at("activation_bytes").get<std::uint64_t>());
    EXPECT_GT(found.at("backward_ms").get<double>(), 0);
}

TEST(Profile, ShowsTables) {
    const Words tokens = {"--input", "6", "--layers", "1", "--heads", "2", "--width", "8"};
    const std::string text =
        printed_by(Words{"profile", "gpt", "--batch", "2", "--steps", "1", "--top", "3"} + tokens);
    EXPECT_THAT(text, has("model gpt | input [2, 6], output [2, 6, 256]"));
    EXPECT_THAT(text, has(" more: --top 0 lists all\n", "\nh.0.attn.c_attn", "[2, 6, 24]\n"));
    EXPECT_THAT(text, ContainsRegex("parameters   [0-9,]+\nactivations  .*\ntime  "));
}

TEST_F(Commands, PrintTheLineThatStartsRanks) {
    const std::string text = printed_by(
        typed("train --np 3 --oversubscribe --dry-run --data % --run runs/a", {"my data"}));
    EXPECT_THAT(text, has(StartsWith("mpirun -np 3 "), " --data 'my data' --run runs/a"));
    EXPECT_FALSE(fs::exists("runs/a"));
}

std::string map_of(const Words& words, int exit_code = 0) {
    return output_of(run_lockstep(Words{"map"} + words), exit_code);
}

TEST(MapCommand, DividesTheCoresOfANodeAmongItsRanks) {
    EXPECT_THAT(map_of({"--topology", LOCKSTEP_TOPOLOGIES "/cpu16.json", "--ntasks-per-node", "4"}),
                has("4 ranks x 4 threads"));
}

TEST(MapCommand, RefusesWhatMakesNoSense) {
    EXPECT_THAT(map_of({"--hosts", "r1:4", "-np", "7"}, 64), has("E607"));
    EXPECT_THAT(map_of({"--hosts", "r1:4", "--nodes", "2"}, 64), has("E106"));
    EXPECT_THAT(map_of({"--hosts", "r1:4", "--format", "srun"}, 64), has("E645"));
    EXPECT_THAT(map_of({"--topology", "none.json"}, 66), has("E201"));
    EXPECT_THAT(map_of({"--check", "none.json"}, 66), has("E201"));
    EXPECT_THAT(map_of({"--topology", LOCKSTEP_TOPOLOGIES "/workstation.json", "-np", "5"}, 78),
                has("E608"));
}

TEST(MapCommand, SavesThisNodeAndPlansFromIt) {
    const TempDir folder;
    const std::string file = (folder / "node.json").string();
    EXPECT_THAT(map_of({"--save-topology", file}), has("1 node | 1 rank"));
    EXPECT_THAT(map_of({"--topology", file, "-np", "1"}), has("1 node | 1 rank"));
}

TEST(MapCommand, ShowsTheJobThatRuns) {
    EXPECT_THAT(run_under_mpirun(2, {"map", "--oversubscribe"}),
                ends(0, "1 node | 2 ranks", "\n1     "));
}

/// Such as "0-3,8".
std::string own_cpus() {
    const std::string words = "Cpus_allowed_list:\t";
    return line_from(content_of("/proc/self/status"), words).substr(words.size());
}

/// What two ranks of `train` say, each put on the first core; there are no data, so none trains.
std::string start_on_one_core(const Words& more = {}) {
    const TempDir folder;
    const Words bound{
        "taskset", "-c", own_cpus().substr(0, own_cpus().find_first_of("-,")), program()};
    const Words train{"train", "--data", "none", "--run", (folder / "run").string()};
    const std::string result = output_of(
        run_process(mpirun_words(2) + bound + train + more, {{"LOCKSTEP_BOUND", "off"}}, ample_s),
        testing::Ne(0));
    EXPECT_FALSE(fs::exists(folder / "run"));
    return result;
}

TEST(TrainStart, RefusesOneCoreForTwoRanksWhereThereIsAnother) {
    if (own_cpus().find_first_of("-,") == std::string::npos)
        GTEST_SKIP() << "one core only: it must be shared";
    EXPECT_THAT(
        start_on_one_core(),
        has("E609: ranks 0 and 1 share core ", "fix: mpirun --bind-to core --map-by slot:PE="));
    for (const Words& allowing :
         {Words{"--skip-checks", "C2"}, {"--skip-checks", "all"}, {"--oversubscribe"}})
        EXPECT_THAT(start_on_one_core(allowing), has(Not(has("E609")), "E201"));
}

TEST(MapCommand, ComparesAJobWithItsPlan) {
    const TempDir folder;
    const std::string file =
        folder.file("plan.json", map_of({"-np", "1", "--format", "json"})).string();
    EXPECT_THAT(map_of({"--check", file}), has("as planned: 1 rank(s)"));
    EXPECT_THAT(
        run_under_mpirun(2, {"map", "--check", file}),
        ends(78, "E644: the job does not run as planned: 1 ranks are planned, 2 are found"));
}

}  // namespace
}  // namespace lockstep::test
