// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "mini_cluster_text.hpp"
#include "support/caught.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    EXPECT_EQ(refusal({{"gpus-per-node", "a100:1"}}).code(), "E527");
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

TEST(JobCheck, RefusesUnknownJobsAndTasks) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal({{"dependency", "afterok:99"}}, facts).code(), "E534");
    facts.jobs = {"99"};
    EXPECT_THAT(notes_on({{"dependency", "afterok:99"}}, facts), IsEmpty());
    EXPECT_EQ(refusal({{"array", "0-1001"}}).code(), "E538");
    EXPECT_THAT(notes_on({{"array", "0-1000%2"}}, facts), IsEmpty());
}

}  // namespace
}  // namespace lockstep
