// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/job_request.hpp"

#include "mini_cluster_text.hpp"
#include "support/unit.hpp"

namespace lockstep {
namespace {

using test::options_of;
using testing::_;

std::vector<std::string> notes_on(const std::string& options,
                                  const SlurmFacts& facts = test::mini_facts()) {
    return check_request(read_request({options_of(options)}), facts);
}

Error refusal(const std::string& options, const SlurmFacts& facts = test::mini_facts()) {
    return test::error_of([&] { notes_on(options, facts); });
}

TEST(JobCheck, TakesWhatCanStart) {
    for (const char* options : {"",
                                "partition=gpu nodes=2 ntasks-per-node=8 gpus-per-node=h100:4 "
                                "mem=8000 time=1-00:00:00",
                                "ntasks=16",
                                "array=0-1000%2",
                                "nodelist=node[1-2]",
                                "exclude=node1",
                                "partition=cpu constraint=big",
                                "partition=cpu constraint=big&avx512",
                                "partition=cpu constraint=big|avx512",
                                "partition=cpu constraint=[big*2&avx512*1]",
                                "partition=cpu constraint=(big&avx512)|big"})
        EXPECT_THAT(notes_on(options), IsEmpty()) << options;
}

TEST(JobCheck, NotesWhatMayKeepAJobWaiting) {
    EXPECT_THAT(notes_on("partition=short,gpu time=30"),
                Contains(has("'short' will not take the job")));
    EXPECT_THAT(notes_on("partition=cpu nodes=7"),
                Contains(has("2 of the 8 nodes of 'cpu' are down or drained")));
    EXPECT_THAT(notes_on("partition=cpu nodes=7 constraint=big"), Contains(has("down or drained")));
}

// What no nodes of the mini cluster give: the options, and the code, fix and why of the error.
struct Refused {
    std::string options;
    testing::Matcher<const std::string&> code, fix = _, why = _;
};

const std::vector<Refused> refused_requests{
    {"partition=gpuu", "E523", "--partition gpu", has("gpu (2 of 2 nodes idle)", "short")},
    {"partition=gpu,nope", "E523"},
    {"partition=short,debug time=30", "E525"},
    {"partition=gpu nodes=99", "E524", "--nodes 2", has("'gpu' has 2", "wait for ever")},
    {"partition=cpu nodes=8", _, "--nodes 7"},
    {"nodes=5", _, "--nodes 2 or --partition cpu"},
    {"partition=gpu time=10-00:00:00", "E525", has("--time 1-00:00:00")},
    {"partition=short time=2", _, has("--time 00:01:00", "or --partition debug")},
    {"partition=cpu gpus-per-node=4", "E527", "--partition debug", has("nodes of 'cpu' have none")},
    {"gpus-per-node=9", _, "--gpus-per-node 4"},
    {"gpus-per-node=a100:1", "E527", "--gpus-per-node h100:4", has("nodes of 'debug' have h100:4")},
    {"gres=gpu:9", "E527"},
    {"mem=999999G", "E528", "--mem 8000M"},
    {"ntasks-per-node=4 cpus-per-task=4", "E536", "--ntasks-per-node 2"},
    {"cpus-per-task=16", _, "--ntasks-per-node 1 --cpus-per-task 8"},
    {"ntasks=999", _, "--ntasks 16"},
    {"nodes=9 time=9-0 mem=9T", _, has("--time 00:10:00", "--mem 8000M")},
    {"array=0-1001", "E538"},
    {"partition=cpu constraint=bigg", "E542", "write 'big'", "there are avx512, big"},
    {"partition=cpu constraint=big|slow", "E542"},
    {"partition=cpu nodes=7 constraint=avx512", _, "--nodes 6"},  // six of eight have it
    {"partition=debug constraint=big", "E542", "drop --constraint or --partition cpu"},
    {"exclude=nide1", "E543"},
    {"exclude=node[1-2]", "E543"},
    {"nodelist=cpu01", "E543"},
    {"nodelist=node1 exclude=node1", "E543"},
    {"nodelist=node[1-", "E103"},
    {"nodelist=nide1", _, "write 'node1'"},
    {"nodes=2 exclude=node1", _, "--nodes 1 or --partition cpu", has("--exclude")},
    {"nodes=1 nodelist=node[1-2]", _, "--nodes 2"},
    {"ntasks=16 exclude=node1", _, "--ntasks 8 or --partition cpu"}};

TEST(JobCheck, RefusesWhatNoNodesGive) {
    for (const auto& [options, code, fix, why] : refused_requests) {
        SCOPED_TRACE(options);
        const Error error = refusal(options);
        EXPECT_THAT(error.code(), code);
        EXPECT_THAT(error.fix(), fix);
        EXPECT_THAT(error.why(), why);
    }
}

TEST(JobCheck, RefusesSegmentsThatSlurmWould) {
    SlurmFacts facts = test::mini_facts();
    facts.version = 250503;
    facts.topology = "topology/block";
    const std::string even = "partition=cpu nodes=4 segment=2";
    EXPECT_THAT(notes_on(even, facts), IsEmpty());
    EXPECT_THAT(notes_on("partition=cpu nodes=3 segment=4", facts), IsEmpty())
        << "less than one segment";
    const Error error = refusal("partition=cpu nodes=5 segment=2", facts);
    EXPECT_EQ(error.code(), "E524");
    EXPECT_EQ(error.fix(), "--nodes 4, or another --segment");
    EXPECT_EQ(refusal("partition=cpu nodes=5 segment=0", facts).code(), "E103");
    facts.topology = "topology/tree";
    EXPECT_THAT(notes_on(even, facts),
                ElementsAre(has("has no effect: the topology of this cluster is "
                                "'topology/tree'")));
    facts.version = 231100;
    EXPECT_THAT(refusal(even, facts).why(), has("it is 23.11, and 24.05 is"));
}

TEST(JobCheck, RefusesWhatDifferentNodesHave) {
    SlurmFacts facts = test::mini_facts();
    facts.groups.push_back({"debug", "idle", 1, 8, 64'000, {}});
    EXPECT_THAT(notes_on("mem=60G", facts), IsEmpty());
    const Error error = refusal("mem=60G gpus-per-node=1", facts);
    EXPECT_EQ(error.code(), "E524");
    EXPECT_THAT(error.why(), has("no node of 'debug' has all of them"));
}

TEST(JobCheck, ChecksEachPartOfAHeterogeneousJob) {
    const auto check_parts = [](const std::string& second) {
        return caught_code([&] {
            check_request(read_request({options_of("partition=debug time=5"), options_of(second)}),
                          test::mini_facts());
        });
    };
    EXPECT_EQ(check_parts("partition=gpu nodes=2"), "");
    EXPECT_EQ(check_parts("partition=gpu nodes=3"), "E524");
    EXPECT_EQ(check_parts("partition=short"), "E525");
}

TEST(JobCheck, RefusesAClosedPartitionAndOneWithoutNodes) {
    SlurmFacts facts = test::mini_facts();
    facts.partitions[0].is_default = false;
    EXPECT_EQ(refusal("", facts).code(), "E523");
    facts = test::mini_facts();
    facts.partitions[0].state = "DOWN";
    EXPECT_EQ(refusal("", facts).code(), "E535");
    facts.partitions[0].state = "UP";
    facts.partitions[0].total_nodes = 0;
    EXPECT_THAT(refusal("", facts).why(), has("it has no nodes"));
    facts = test::mini_facts();
    facts.groups[0].state = "drained";
    EXPECT_EQ(refusal("", facts).what(), std::string("only drained nodes are left"));
    EXPECT_THAT(refusal("", facts).fix(), has("--partition"));
}

TEST(JobCheck, RefusesAccountsThatAreNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_THAT(notes_on("account=any", facts), IsEmpty()) << "no accounts are kept";
    facts.has_accounts = true;
    facts.accounts = {"proj1", "proj2"};
    const Error error = refusal("account=proj3", facts);
    EXPECT_EQ(error.code(), "E533");
    EXPECT_EQ(error.why(), "yours: proj1, proj2");
    EXPECT_THAT(notes_on("account=proj1", facts), IsEmpty());
    facts.partitions[0].accounts = {"proj2"};
    EXPECT_EQ(refusal("account=proj1", facts).code(), "E533");
    facts.accounts.clear();
    EXPECT_EQ(refusal("", facts).code(), "E533");
}

TEST(JobCheck, RefusesDependenciesThatAreNoneOrNeverHold) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal("dependency=afterok:99", facts).code(), "E534");
    facts.jobs = {{"99", "RUNNING"}, {"98", "FAILED"}, {"97", "COMPLETED"}};
    for (const std::string text :
         {"afterok:99", "afterany:98", "afternotok:98", "afterok:97:99", "after:98"})
        EXPECT_THAT(notes_on("dependency=" + text, facts), IsEmpty()) << text;
    for (const std::string text :
         {"afterok:98", "aftercorr:98", "afternotok:97", "afterok:99:98"}) {
        const Error error = refusal("dependency=" + text, facts);
        EXPECT_EQ(error.code(), "E534") << text;
        EXPECT_THAT(error.why(), has("for ever")) << text;
    }
    EXPECT_THAT(refusal("dependency=afterok:98", facts).fix(), has("afterany:98"));
}

TEST(JobCheck, RefusesReservationsThatAreNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal("reservation=noon", facts).code(), "E544");
    facts.user = "ada";
    facts.reservations = {{"now", "ACTIVE", "", 1, {"ada"}, {}},
                          {"later", "INACTIVE", "2030-01-01", 2, {}, {"proj1"}},
                          {"bobs", "ACTIVE", "", 2, {"bob"}, {}}};
    EXPECT_THAT(notes_on("reservation=now", facts), IsEmpty());
    EXPECT_EQ(refusal("reservation=noww", facts).fix(), "--reservation now");
    EXPECT_EQ(refusal("reservation=now nodes=2", facts).fix(), "--nodes 1");
    EXPECT_THAT(refusal("reservation=bobs", facts).why(), has("it is for bob"));
    EXPECT_EQ(refusal("reservation=later", facts).code(), "E544");
    EXPECT_THAT(notes_on("reservation=later account=proj1", facts),
                Contains(has("which begins at 2030-01-01")));
}

TEST(JobCheck, RefusesQosThatIsNotTheUsers) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_THAT(notes_on("qos=any", facts), IsEmpty()) << "no accounts are kept";
    facts.has_accounts = true;
    facts.accounts = {"proj1"};
    facts.qos = {"normal", "high"};
    const Error error = refusal("qos=hihg", facts);
    EXPECT_EQ(error.code(), "E545");
    EXPECT_EQ(error.fix(), "--qos high");
    facts.partitions[0].qos = {"normal"};
    EXPECT_EQ(refusal("qos=high", facts).fix(), "--qos normal or --partition gpu");
    facts.partitions[0].qos.clear();
    facts.partitions[0].denied_qos = {"high"};
    EXPECT_EQ(refusal("qos=high", facts).code(), "E545");
    EXPECT_THAT(notes_on("qos=normal", facts), IsEmpty());
}

TEST(JobCheck, RefusesLicencesThatThereAreNot) {
    SlurmFacts facts = test::mini_facts();
    EXPECT_EQ(refusal("licenses=matlab", facts).code(), "E546");
    facts.licences = {{"matlab", 2}};
    EXPECT_THAT(notes_on("licenses=matlab:2", facts), IsEmpty());
    EXPECT_EQ(refusal("licenses=matlab:3", facts).fix(), "--licenses matlab:2");
    EXPECT_EQ(refusal("licenses=matlab:x", facts).code(), "E103");
}

}  // namespace
}  // namespace lockstep
