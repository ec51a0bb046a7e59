// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/split.hpp"

#include "mini_cluster_text.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <fstream>

namespace lockstep {
namespace {

using test::options_of;

std::string code_of(const std::string& name, const std::string& value) {
    return caught_code([&] { read_request({{{name, value}}}); });
}

TEST(JobRequest, ReadsEachOptionByItsType) {
    const JobRequest request = read_request(
        {options_of("job-name=a.b-1 partition=gpu,debug nodes=1-4 ntasks-per-node=2 "
                    "cpus-per-task=3 gpus-per-node=h100:2 mem=2G time=10 array=0-7:2,9%2 "
                    "dependency=afterok:12:13_4,singleton")});
    const JobPart& part = request.parts.at(0);
    EXPECT_EQ(request.job_name, "a.b-1");
    EXPECT_THAT(part.partitions, ElementsAre("gpu", "debug"));
    EXPECT_EQ(part.least_nodes, 1);
    EXPECT_EQ(part.most_nodes, 4);
    EXPECT_EQ(part.node_tasks, 2);
    EXPECT_EQ(part.task_cpus, 3);
    EXPECT_EQ(part.gpu_type, "h100");
    EXPECT_EQ(part.node_gpus, 2);
    EXPECT_EQ(part.node_memory_mb, 2048);
    EXPECT_EQ(part.seconds, 600);
    EXPECT_EQ(request.last_task, 9);
    EXPECT_THAT(request.awaited_jobs,
                ElementsAre(AwaitedJob{"afterok", "12"}, AwaitedJob{"afterok", "13"}));
}

TEST(JobRequest, ReadsDependenciesAsSlurmDoes) {
    const auto depends_on = [](const std::string& text) {
        return read_request({{{"dependency", text}}});
    };
    EXPECT_THAT(depends_on("after:5+10:6").awaited_jobs,
                ElementsAre(AwaitedJob{"after", "5"}, AwaitedJob{"after", "6"}));
    const auto either = depends_on("afterok:5?afternotok:6_2");
    EXPECT_TRUE(either.awaits_any);
    EXPECT_THAT(either.awaited_jobs,
                ElementsAre(AwaitedJob{"afterok", "5"}, AwaitedJob{"afternotok", "6"}));
    EXPECT_THAT(depends_on("afterok:5?singleton").awaited_jobs, IsEmpty());
    EXPECT_FALSE(depends_on("afterok:5,afterok:6").awaits_any);
}

TEST(JobRequest, KnowsTimesWithoutEnd) {
    for (const char* text : {"UNLIMITED", "infinite", "0", "-1"})
        EXPECT_EQ(read_request({{{"time", text}}}).parts[0].seconds, endless_s) << text;
}

TEST(JobRequest, ReadsMemoryInSlurmsUnits) {
    const auto memory = [](const std::string& text) {
        return read_request({{{"mem", text}}}).parts[0].node_memory_mb;
    };
    EXPECT_EQ(memory("500"), 500);
    EXPECT_EQ(memory("500M"), 500);
    EXPECT_EQ(memory("1025K"), 2);
    EXPECT_EQ(memory("1t"), 1024 * 1024);
}

TEST(JobRequest, RefusesValuesOfAnotherType) {
    const std::map<std::string, std::vector<std::string>> refused{
        {"nodes", {"two", "0", "4-1", "1e3"}},
        {"ntasks", {"-3"}},
        {"ntasks-per-node", {"0"}},
        {"cpus-per-task", {"99999999999999999999"}},
        {"mem", {"lots", "1.5G"}},
        {"gpus-per-node", {"h100", "h100:x"}},
        {"array", {"7-0", "a", "0-7%0"}},
        {"dependency",
         {"afterok", "later:5", "after:5+", "afterok:5+5", "afterok:5,afterok:6?afterok:7", "?"}}};
    for (const auto& [name, values] : refused)
        for (const std::string& value : values)
            EXPECT_EQ(code_of(name, value), "E103") << name << "=" << value;
    for (const char* time : {"abc", "1:2:3:4", "-5"})
        EXPECT_EQ(code_of("time", time), "E526") << time;
}

// Comment lines of the script carry these values unquoted.
TEST(JobRequest, RefusesCharactersThatAScriptCannotCarry) {
    for (const char* text : {"x; rm -rf ~",
                             "a\nb",
                             "a\tb",
                             "$(id)",
                             "`id`",
                             "a b",
                             "'",
                             "\"",
                             "\\",
                             "a>b",
                             "a<b",
                             "#",
                             "",
                             "~",
                             "{a}",
                             "a\x7f",
                             "\x1b[2J",
                             "\xc3\xa4"})
        for (const char* name : {"job-name", "partition", "account", "qos", "nodes", "comment"})
            EXPECT_EQ(code_of(name, text), "E532") << name << "=" << text;
    for (const char* text :
         {"-x", ".", "..", "a/b", "a|b", "a&b", "a*", "a?", "(a)", "[a]", "!a", "%x"})
        EXPECT_EQ(code_of("job-name", text), "E532") << text;
    EXPECT_EQ(code_of("job-name", std::string(200, 'a')), "E532");
}

// Texts that a shell, or sbatch, would make something else of.
TEST(JobRequest, CarriesStrangeTextsUnchangedOrRefusesThem) {
    std::ifstream file(LOCKSTEP_STRANGE_TEXTS);
    int texts = 0, carried = 0;
    for (std::string text; std::getline(file, text); ++texts)
        for (const std::string& name :
             split("job-name partition account qos constraint exclude nodelist reservation "
                   "licenses dependency array time nodes mem gpus-per-node output comment",
                   ' ')) {
            const std::string code = code_of(name, text);
            if (!code.empty()) {
                EXPECT_THAT(code, AnyOf("E532", "E103", "E526")) << name << " " << text;
                continue;
            }
            ++carried;
            const JobTemplate script{.head = "#!/bin/sh\n", .parts = {{{name, text}}}, .body = {}};
            const auto again = parse_template("again", render_script(script, {}));
            EXPECT_EQ(value_of(again.parts.at(0), name), text) << name;
            EXPECT_EQ(again.parts[0].size(), 1u) << name << " " << text;
        }
    EXPECT_GE(texts, 40);
    EXPECT_GT(carried, 0);
}

const std::string plain =
    "#!/usr/bin/env bash\n# what it is\n#SBATCH --job-name=a  # a comment\n"
    "#SBATCH -N 2 --ntasks-per-node=2\n#SBATCH --requeue\n. job.sh\n#SBATCH --mem=1\n"
    "\nrun_ranks mpirun lockstep train --data \"$data\" \\\n    --run \"$run\"\nsettle \"$run\"\n";

TEST(JobTemplate, IsTakenApart) {
    const auto script = parse_template("x", plain);
    ASSERT_EQ(script.parts.size(), 1u);
    EXPECT_EQ(value_of(script.parts[0], "job-name"), "a");
    EXPECT_EQ(value_of(script.parts[0], "nodes"), "2");
    EXPECT_EQ(value_of(script.parts[0], "ntasks-per-node"), "2");
    EXPECT_EQ(value_of(script.parts[0], "requeue"), "");
    EXPECT_FALSE(value_of(script.parts[0], "mem").has_value()) << "sbatch stops at a command";
    EXPECT_EQ(script.head, "#!/usr/bin/env bash\n# what it is\n");
    EXPECT_EQ(launcher_of(script), Launcher::mpirun);
    const auto parts = parse_template("x", "#!/b\n#SBATCH -p a\n#SBATCH hetjob\n#SBATCH -p b\nx\n");
    ASSERT_EQ(parts.parts.size(), 2u);
    EXPECT_EQ(value_of(parts.parts[1], "partition"), "b");
}

TEST(JobTemplate, SaysWhetherItTrains) {
    EXPECT_TRUE(trains(parse_template("x", plain)));
    const auto with = [](const std::string& line) {
        return trains(parse_template("x", "#!/bin/bash\n#SBATCH -N1\n" + line + "\n"));
    };
    EXPECT_TRUE(with("srun  lockstep\ttrain --epochs 1"));
    EXPECT_FALSE(with("# then: lockstep train --data D"));
    EXPECT_FALSE(with("lockstep data pack train"));
}

TEST(JobTemplate, IsRefusedWithWindowsLineEndsOrWithoutItsMarks) {
    for (const std::string text : {"#!/bin/bash\r\n#SBATCH -N1\r\n",
                                   "#SBATCH -N1\n",
                                   "",
                                   "#!/bin/bash\necho\n",
                                   "#!/bin/bash\n#SBATCH nodes=2\n",
                                   "#!/bin/bash\n#SBATCH -Z 2\n"})
        EXPECT_EQ(caught_code([&] { parse_template("x", text); }), "E531") << text;
}

TEST(JobScript, HasTheNewOptionsAndTheOldBody) {
    auto script = parse_template("x", plain);
    set_option(script.parts[0], "nodes", "4");
    set_option(script.parts[0], "time", "01:00:00");
    const auto text = render_script(script, {.variables = {{"RUN", "runs/a b"}}, .words = {}});
    EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=4\n"));
    EXPECT_THAT(text, Not(HasSubstr("-N 2")));
    EXPECT_THAT(text, HasSubstr("#SBATCH --time=01:00:00\nexport RUN='runs/a b'\n. job.sh"));
    EXPECT_THAT(text, EndsWith(script.body));
    EXPECT_EQ(parse_template("y", text).parts[0].size(), script.parts[0].size());
}

TEST(JobScript, GivesEachTaskOfAnArrayItsOwnRunAndNumber) {
    auto script = parse_template("x", plain);
    set_option(script.parts[0], "array", "0-2");
    const auto text =
        render_script(script, {.variables = {{"RUN", "runs/a"}}, .words = {"--seed", "1%a0"}});
    EXPECT_THAT(text, HasSubstr("export RUN='runs/a'/task-\"$SLURM_ARRAY_TASK_ID\"\n"));
    EXPECT_THAT(text, HasSubstr("set -- '--seed' '1'\"$SLURM_ARRAY_TASK_ID\"'0'\n"));
}

// Whatever bash could make of them, it reads them back as they are. The file's last line is empty.
TEST(BashWord, CarriesAnyTextWithoutControlCharacters) {
    std::vector<std::string> texts = split(content_of(LOCKSTEP_STRANGE_TEXTS), '\n');
    texts.insert(texts.end(), {" ", "--", "%a", "< trace", "[a-z]", "^"});
    EXPECT_GE(texts.size(), 40u);
    for (const std::string& text : texts) {
        const auto echo =
            run_process({"bash",
                         "-c",
                         "cd / && set -- " + bash_word("a word", text) + " && printf '%s' \"$1\""});
        EXPECT_EQ(echo.output, text);
        EXPECT_EQ(echo.exit_code, 0) << text;
    }
    EXPECT_FALSE(fs::exists("/trace"));
    for (const std::string text : {"a\nb", "a\rb", "\x1b[2J", "\x7f", "\t"})
        EXPECT_EQ(caught_code([&] { bash_word("a word", text); }), "E532");
}

// Two sockets of 28 cores with two threads each, and eight GPUs.
NodeGroup dgx() {
    return {.partition = "gpu",
            .state = "idle",
            .nodes = 4,
            .cpus = 112,
            .memory_mb = 2'000'000,
            .gpus = {{"h100", 8}},
            .sockets = 2,
            .socket_cores = 28,
            .core_threads = 2};
}

SlurmFacts dgx_facts() {
    SlurmFacts facts;
    facts.partitions = {{.name = "gpu", .is_default = true, .state = "UP", .total_nodes = 4}};
    facts.groups = {dgx()};
    return facts;
}

JobRequest request_of(const std::vector<std::string>& parts) {
    std::vector<SbatchOptions> options;
    for (const std::string& part : parts) options.push_back(options_of(part));
    return read_request(options);
}

TEST(JobMap, CountsCpusAsLinuxDoes) {
    const NodeTopology node = planned_node(dgx(), {.takes_whole_nodes = true});
    EXPECT_EQ(node.cpus.size(), 112u);
    EXPECT_THAT(node.cores[0], ElementsAre(0, 56));
    EXPECT_THAT(node.cores[28], ElementsAre(28, 84));
    EXPECT_EQ(node.sockets[1].front(), 28);
    EXPECT_EQ(node.numa_nodes[1].cpus.back(), 111);
    EXPECT_EQ(node.allowed_cpus, node.cpus);
}

TEST(JobMap, GivesAJobTheCoresItAsksFor) {
    const auto node = planned_node(dgx(), {.node_tasks = 3, .task_cpus = 3});
    // Nine CPUs are five cores.
    EXPECT_THAT(node.allowed_cpus, ElementsAre(0, 1, 2, 3, 4, 56, 57, 58, 59, 60));
}

TEST(JobMap, BelievesSlurmsCountOfCpusMore) {
    NodeGroup odd = dgx();
    odd.cpus = 56;  // one CPU a core
    EXPECT_EQ(planned_node(odd, {}).cores.size(), 56u);
    EXPECT_EQ(planned_node(odd, {}).sockets.size(), 2u);
    odd.cpus = 7;
    EXPECT_EQ(planned_node(odd, {}).cores.size(), 7u);
}

TEST(JobMap, PutsRanksNextToTheirGpus) {
    const auto plan = plan_job_map(
        request_of({"nodes=2 ntasks-per-node=8 cpus-per-task=14 gpus-per-node=8"}), dgx_facts(), 0);
    ASSERT_EQ(plan.seats.size(), 16u);
    EXPECT_FALSE(plan.names_hosts);
    EXPECT_EQ(plan.seats[0].host, "gpu:0");
    EXPECT_EQ(plan.seats[8].host, "gpu:1");
    EXPECT_EQ(plan.seats[5].gpu, "gpu5");
    EXPECT_THAT(plan.seats[3].numa_nodes, ElementsAre(0));
    EXPECT_THAT(plan.seats[4].numa_nodes, ElementsAre(1));
    EXPECT_EQ(plan.seats[15].cpus.size(), 7u);
}

TEST(JobMap, FillsNodesInTurn) {
    const auto plan = plan_job_map(request_of({"nodes=2 ntasks=3"}), test::mini_facts(), 1);
    std::vector<std::string> hosts;
    for (const RankSeat& seat : plan.seats) hosts.push_back(seat.host);
    EXPECT_THAT(hosts, ElementsAre("debug:0", "debug:0", "debug:1"));
}

TEST(JobMap, CountsRanksOverAllParts) {
    const auto plan = plan_job_map(request_of({"partition=debug ntasks-per-node=2",
                                               "partition=cpu nodes=2 ntasks-per-node=1"}),
                                   test::mini_facts(),
                                   1);
    ASSERT_EQ(plan.seats.size(), 4u);
    for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(plan.seats[static_cast<std::size_t>(rank)].rank, rank);
    EXPECT_EQ(plan.seats[3].host, "cpu:1");
}

TEST(JobMap, IsAComment) {
    const auto text =
        job_map_text(request_of({"nodes=2 ntasks-per-node=2"}), test::mini_facts(), 1);
    EXPECT_THAT(text,
                AllOf(HasSubstr("# map, planned"),
                      HasSubstr("#   nodes of 'debug': 2 x 4 cores x 1 thread(s), 4 GPUs\n"),
                      HasSubstr("#   2 nodes | 4 ranks x 1 thread\n")));
    EXPECT_THAT("\n" + text.substr(0, text.size() - 1), Not(ContainsRegex("\n[^#]")));
}

TEST(JobMap, SaysWhyThereIsNone) {
    const auto text =
        job_map_text(request_of({"ntasks-per-node=4 gpus-per-node=2"}), test::mini_facts(), 1);
    EXPECT_THAT(text, AllOf(HasSubstr("none (E608)"), HasSubstr("4 ranks on debug:0 for 2 GPU")));
}

TEST(JobMap, ShortensLongTables) {
    SlurmFacts facts = dgx_facts();
    facts.groups[0].nodes = 40;
    facts.partitions[0].total_nodes = 40;
    const auto text =
        job_map_text(request_of({"nodes=40 ntasks-per-node=8 cpus-per-task=2"}), facts, 1);
    EXPECT_LT(std::ranges::count(text, '\n'), 50);
    EXPECT_THAT(text, HasSubstr("lines more"));
}

}  // namespace
}  // namespace lockstep
