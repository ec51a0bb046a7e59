// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "mini_cluster_text.hpp"
#include "support/caught.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> notes_on(const SbatchOptions& options, const SlurmFacts& facts) {
    return check_request(read_request({options}), facts);
}

Error refusal(const SbatchOptions& options, const SlurmFacts& facts = test::mini_facts()) {
    const auto error = test::caught([&] { notes_on(options, facts); });
    return error ? *error : Error("E700", "not refused");
}

TEST(JobCheck, TakesWhatCanStart) {
    EXPECT_THAT(notes_on({}, test::mini_facts()), IsEmpty());
    EXPECT_THAT(notes_on({{"partition", "gpu"},
                          {"nodes", "2"},
                          {"ntasks-per-node", "8"},
                          {"gpus-per-node", "h100:4"},
                          {"mem", "8000"},
                          {"time", "1-00:00:00"}},
                         test::mini_facts()),
                IsEmpty());
    EXPECT_THAT(notes_on({{"ntasks", "16"}}, test::mini_facts()), IsEmpty());
}

TEST(JobCheck, RefusesAPartitionThatIsNotThere) {
    const Error error = refusal({{"partition", "gpuu"}});
    EXPECT_EQ(error.code(), "E523");
    EXPECT_THAT(error.why(), AllOf(HasSubstr("gpu (2 of 2 nodes idle)"), HasSubstr("short")));
    EXPECT_EQ(error.fix(), "--partition gpu");
    EXPECT_EQ(refusal({{"partition", "gpu,nope"}}).code(), "E523");
    SlurmFacts facts = test::mini_facts();
    facts.partitions[0].is_default = false;
    EXPECT_EQ(refusal({}, facts).code(), "E523");
}

TEST(JobCheck, RefusesTooManyNodes) {
    const Error error = refusal({{"partition", "gpu"}, {"nodes", "99"}});
    EXPECT_EQ(error.code(), "E524");
    EXPECT_THAT(error.why(), AllOf(HasSubstr("'gpu' has 2"), HasSubstr("wait for ever")));
    EXPECT_EQ(error.fix(), "--nodes 2");
    EXPECT_EQ(refusal({{"partition", "cpu"}, {"nodes", "8"}}).fix(), "--nodes 7");
    EXPECT_EQ(refusal({{"nodes", "5"}}).fix(), "--nodes 2 or --partition cpu");
}

TEST(JobCheck, RefusesSegmentsThatSlurmWould) {
    const auto with = [](const char* nodes, const char* segment) {
        return SbatchOptions{{"partition", "cpu"}, {"nodes", nodes}, {"segment", segment}};
    };
    SlurmFacts facts = test::mini_facts();
    facts.version = 250503;
    facts.topology = "topology/block";
    EXPECT_THAT(notes_on(with("4", "2"), facts), IsEmpty());
    EXPECT_THAT(notes_on(with("3", "4"), facts), IsEmpty()) << "less than one segment";
    const Error error = refusal(with("5", "2"), facts);
    EXPECT_EQ(error.code(), "E524");
    EXPECT_EQ(error.fix(), "--nodes 4, or another --segment");
    EXPECT_EQ(refusal(with("5", "0"), facts).code(), "E103");
    facts.topology = "topology/tree";
    EXPECT_THAT(notes_on(with("4", "2"), facts),
                testing::ElementsAre(HasSubstr("has no effect: the topology of this cluster is "
                                               "'topology/tree'")));
    facts.version = 231100;
    EXPECT_THAT(refusal(with("4", "2"), facts).why(), HasSubstr("it is 23.11, and 24.05 is"));
}

TEST(JobCheck, RefusesATimeOverTheLimit) {
    const Error error = refusal({{"partition", "gpu"}, {"time", "10-00:00:00"}});
    EXPECT_EQ(error.code(), "E525");
    EXPECT_THAT(error.fix(), HasSubstr("--time 1-00:00:00"));
    EXPECT_THAT(refusal({{"partition", "short"}, {"time", "2"}}).fix(),
                AllOf(HasSubstr("--time 00:01:00"), HasSubstr("or --partition debug")));
}

TEST(JobCheck, RefusesGpusMemoryAndCpusThatNoNodeHas) {
    const Error gpus = refusal({{"partition", "cpu"}, {"gpus-per-node", "4"}});
    EXPECT_EQ(gpus.code(), "E527");
    EXPECT_THAT(gpus.why(), HasSubstr("nodes of 'cpu' have none"));
    EXPECT_EQ(gpus.fix(), "--partition debug");
    EXPECT_EQ(refusal({{"gpus-per-node", "9"}}).fix(), "--gpus-per-node 4");
    const Error type = refusal({{"gpus-per-node", "a100:1"}});
    EXPECT_EQ(type.code(), "E527");
    EXPECT_THAT(type.why(), HasSubstr("nodes of 'debug' have h100:4"));
    EXPECT_EQ(type.fix(), "--gpus-per-node h100:4");
    EXPECT_EQ(refusal({{"gres", "gpu:9"}}).code(), "E527");
    const Error memory = refusal({{"mem", "999999G"}});
    EXPECT_EQ(memory.code(), "E528");
    EXPECT_EQ(memory.fix(), "--mem 8000M");
    const Error cpus = refusal({{"ntasks-per-node", "4"}, {"cpus-per-task", "4"}});
    EXPECT_EQ(cpus.code(), "E536");
    EXPECT_EQ(cpus.fix(), "--ntasks-per-node 2");
    EXPECT_EQ(refusal({{"cpus-per-task", "16"}}).fix(), "--ntasks-per-node 1 --cpus-per-task 8");
    EXPECT_EQ(refusal({{"ntasks", "999"}}).fix(), "--ntasks 16");
}

TEST(JobCheck, RefusesWhatDifferentNodesHave) {
    SlurmFacts facts = test::mini_facts();
    facts.groups.push_back({"debug", "idle", 1, 8, 64'000, {}});
    EXPECT_THAT(notes_on({{"mem", "60G"}}, facts), IsEmpty());
    const Error error = refusal({{"mem", "60G"}, {"gpus-per-node", "1"}}, facts);
    EXPECT_EQ(error.code(), "E524");
    EXPECT_THAT(error.why(), HasSubstr("no node of 'debug' has all of them"));
}

TEST(JobCheck, SaysEveryReasonAtOnce) {
    const Error error = refusal({{"nodes", "9"}, {"time", "9-0"}, {"mem", "9T"}});
    EXPECT_THAT(error.fix(), AllOf(HasSubstr("--time 00:10:00"), HasSubstr("--mem 8000M")));
}

TEST(JobCheck, AnyOfSeveralPartitionsWillDo) {
    const SbatchOptions options = {{"partition", "short,gpu"}, {"time", "30"}};
    EXPECT_THAT(notes_on(options, test::mini_facts()),
                Contains(HasSubstr("'short' will not take the job")));
    EXPECT_EQ(refusal({{"partition", "short,debug"}, {"time", "30"}}).code(), "E525");
}

TEST(JobCheck, ChecksEachPartOfAHeterogeneousJob) {
    const auto check_parts = [](const SbatchOptions& second) {
        return test::caught_code([&] {
            check_request(read_request({{{"partition", "debug"}, {"time", "5"}}, second}),
                          test::mini_facts());
        });
    };
    EXPECT_EQ(check_parts({{"partition", "gpu"}, {"nodes", "2"}}), "");
    EXPECT_EQ(check_parts({{"partition", "gpu"}, {"nodes", "3"}}), "E524");
    EXPECT_EQ(check_parts({{"partition", "short"}}), "E525");
}

TEST(JobCheck, RefusesAClosedPartitionAndWaitsForNodesThatAreAway) {
    SlurmFacts facts = test::mini_facts();
    facts.partitions[0].state = "DOWN";
    EXPECT_EQ(refusal({}, facts).code(), "E535");
    facts.partitions[0].state = "UP";
    facts.partitions[0].total_nodes = 0;
    EXPECT_THAT(refusal({}, facts).why(), HasSubstr("it has no nodes"));
    facts = test::mini_facts();
    facts.groups[0].state = "drained";
    EXPECT_EQ(refusal({}, facts).what(), std::string("only drained nodes are left"));
    EXPECT_THAT(refusal({}, facts).fix(), HasSubstr("--partition"));
    EXPECT_THAT(notes_on({{"partition", "cpu"}, {"nodes", "7"}}, test::mini_facts()),
                Contains(HasSubstr("2 of the 8 nodes of 'cpu' are down or drained")));
}

TEST(JobCheck, RefusesAccountsThatAreNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_THAT(notes_on({{"account", "any"}}, facts), IsEmpty()) << "no accounts are kept";
    facts.has_accounts = true;
    facts.accounts = {"proj1", "proj2"};
    const Error error = refusal({{"account", "proj3"}}, facts);
    EXPECT_EQ(error.code(), "E533");
    EXPECT_EQ(error.why(), "yours: proj1, proj2");
    EXPECT_THAT(notes_on({{"account", "proj1"}}, facts), IsEmpty());
    facts.partitions[0].accounts = {"proj2"};
    EXPECT_EQ(refusal({{"account", "proj1"}}, facts).code(), "E533");
    facts.accounts.clear();
    EXPECT_EQ(refusal({}, facts).code(), "E533");
}

TEST(JobCheck, RefusesUnknownTasks) {
    EXPECT_EQ(refusal({{"array", "0-1001"}}).code(), "E538");
    EXPECT_THAT(notes_on({{"array", "0-1000%2"}}, test::mini_facts()), IsEmpty());
}

TEST(JobCheck, RefusesDependenciesThatAreNoneOrNeverHold) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal({{"dependency", "afterok:99"}}, facts).code(), "E534");
    facts.jobs = {{"99", "RUNNING"}, {"98", "FAILED"}, {"97", "COMPLETED"}};
    for (const char* text :
         {"afterok:99", "afterany:98", "afternotok:98", "afterok:97:99", "after:98"})
        EXPECT_THAT(notes_on({{"dependency", text}}, facts), IsEmpty()) << text;
    for (const char* text : {"afterok:98", "aftercorr:98", "afternotok:97", "afterok:99:98"}) {
        const Error error = refusal({{"dependency", text}}, facts);
        EXPECT_EQ(error.code(), "E534") << text;
        EXPECT_THAT(error.why(), HasSubstr("for ever")) << text;
    }
    EXPECT_THAT(refusal({{"dependency", "afterok:98"}}, facts).fix(), HasSubstr("afterany:98"));
}

TEST(JobCheck, RefusesFeaturesThatNoNodeHas) {
    const SlurmFacts facts = test::mini_facts();
    const Error error = refusal({{"partition", "cpu"}, {"constraint", "bigg"}});
    EXPECT_EQ(error.code(), "E542");
    EXPECT_EQ(error.why(), "there are avx512, big");
    EXPECT_EQ(error.fix(), "write 'big'");
    EXPECT_EQ(refusal({{"partition", "cpu"}, {"constraint", "big|slow"}}).code(), "E542");
    for (const char* text :
         {"big", "big&avx512", "big|avx512", "[big*2&avx512*1]", "(big&avx512)|big"})
        EXPECT_THAT(notes_on({{"partition", "cpu"}, {"constraint", text}}, facts), IsEmpty())
            << text;
    // Six of eight nodes have it.
    EXPECT_EQ(refusal({{"partition", "cpu"}, {"nodes", "7"}, {"constraint", "avx512"}}).fix(),
              "--nodes 6");
    EXPECT_THAT(notes_on({{"partition", "cpu"}, {"nodes", "7"}, {"constraint", "big"}}, facts),
                Contains(HasSubstr("down or drained")));
    const Error elsewhere = refusal({{"partition", "debug"}, {"constraint", "big"}});
    EXPECT_EQ(elsewhere.code(), "E542");
    EXPECT_EQ(elsewhere.fix(), "drop --constraint or --partition cpu");
}

TEST(JobCheck, RefusesNodesThatCannotBeHadByName) {
    const SlurmFacts facts = test::mini_facts();
    const auto code = [](const SbatchOptions& options) { return refusal(options).code(); };
    EXPECT_EQ(code({{"exclude", "nide1"}}), "E543");
    EXPECT_EQ(refusal({{"nodelist", "nide1"}}).fix(), "write 'node1'");
    EXPECT_EQ(refusal({{"nodes", "2"}, {"exclude", "node1"}}).fix(),
              "--nodes 1 or --partition cpu");
    EXPECT_THAT(refusal({{"nodes", "2"}, {"exclude", "node1"}}).why(), HasSubstr("--exclude"));
    EXPECT_EQ(code({{"exclude", "node[1-2]"}}), "E543");
    EXPECT_EQ(code({{"nodelist", "cpu01"}}), "E543");
    EXPECT_EQ(refusal({{"nodes", "1"}, {"nodelist", "node[1-2]"}}).fix(), "--nodes 2");
    EXPECT_EQ(code({{"nodelist", "node1"}, {"exclude", "node1"}}), "E543");
    EXPECT_EQ(code({{"nodelist", "node[1-"}}), "E103");
    EXPECT_THAT(notes_on({{"nodelist", "node[1-2]"}}, facts), IsEmpty());
    EXPECT_THAT(notes_on({{"exclude", "node1"}}, facts), IsEmpty());
    EXPECT_EQ(refusal({{"ntasks", "16"}, {"exclude", "node1"}}).fix(),
              "--ntasks 8 or --partition cpu");
}

TEST(JobCheck, RefusesReservationsThatAreNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal({{"reservation", "noon"}}, facts).code(), "E544");
    facts.user = "ada";
    facts.reservations = {{"now", "ACTIVE", "", 1, {"ada"}, {}},
                          {"later", "INACTIVE", "2030-01-01", 2, {}, {"proj1"}},
                          {"bobs", "ACTIVE", "", 2, {"bob"}, {}}};
    EXPECT_THAT(notes_on({{"reservation", "now"}}, facts), IsEmpty());
    EXPECT_EQ(refusal({{"reservation", "noww"}}, facts).fix(), "--reservation now");
    EXPECT_EQ(refusal({{"reservation", "now"}, {"nodes", "2"}}, facts).fix(), "--nodes 1");
    EXPECT_THAT(refusal({{"reservation", "bobs"}}, facts).why(), HasSubstr("it is for bob"));
    EXPECT_EQ(refusal({{"reservation", "later"}}, facts).code(), "E544");
    EXPECT_THAT(notes_on({{"reservation", "later"}, {"account", "proj1"}}, facts),
                Contains(HasSubstr("which begins at 2030-01-01")));
}

TEST(JobCheck, RefusesQosThatIsNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_THAT(notes_on({{"qos", "any"}}, facts), IsEmpty()) << "no accounts are kept";
    facts.has_accounts = true;
    facts.accounts = {"proj1"};
    facts.qos = {"normal", "high"};
    const Error error = refusal({{"qos", "hihg"}}, facts);
    EXPECT_EQ(error.code(), "E545");
    EXPECT_EQ(error.fix(), "--qos high");
    facts.partitions[0].qos = {"normal"};
    EXPECT_EQ(refusal({{"qos", "high"}}, facts).fix(), "--qos normal or --partition gpu");
    facts.partitions[0].qos.clear();
    facts.partitions[0].denied_qos = {"high"};
    EXPECT_EQ(refusal({{"qos", "high"}}, facts).code(), "E545");
    EXPECT_THAT(notes_on({{"qos", "normal"}}, facts), IsEmpty());
}

TEST(JobCheck, RefusesLicencesThatThereAreNot) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal({{"licenses", "matlab"}}, facts).code(), "E546");
    facts.licences = {{"matlab", 2}};
    EXPECT_THAT(notes_on({{"licenses", "matlab:2"}}, facts), IsEmpty());
    EXPECT_EQ(refusal({{"licenses", "matlab:3"}}, facts).fix(), "--licenses matlab:2");
    EXPECT_EQ(refusal({{"licenses", "matlab:x"}}, facts).code(), "E103");
}

}  // namespace
}  // namespace lockstep
