// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/doctor.hpp"

#include "lockstep/core/json.hpp"

#include "cluster/doctor/patients.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::cpu_job;
using test::found;
using test::gpu_job;
using test::Job;
using test::Sick;
using test::small_job;

std::vector<Sick> all_cases() {
    std::vector<Sick> all;
    for (auto cases : {test::launch_and_cpu_cases(),
                       test::gpu_cases(),
                       test::fabric_cases(),
                       test::limit_and_self_test_cases()})
        all.insert(all.end(), cases.begin(), cases.end());
    return all;
}

std::string text_of(const std::vector<DoctorFinding>& findings) {
    std::string text;
    for (const DoctorFinding& each : findings)
        text += fmt::format("{} {}: {} | {} | {}\n",
                            severity_name(each.severity),
                            each.id,
                            each.what,
                            each.why,
                            each.fix);
    return text;
}

TEST(DoctorChecks, FindNothingInHealthAndTheirAilmentInSickness) {
    for (const Sick& sick : all_cases()) {
        Job job = sick.healthy();
        EXPECT_EQ(text_of(found(sick.id, job)), "") << sick.id << " " << sick.says;
        sick.harm(job);
        const auto findings = found(sick.id, job);
        const bool is_found = std::ranges::any_of(findings, [&](const DoctorFinding& each) {
            return each.severity == sick.severity &&
                   text_of({each}).find(sick.says) != std::string::npos;
        });
        EXPECT_TRUE(is_found) << sick.id << " does not say '" << sick.says << "' but:\n"
                              << text_of(findings);
        for (const DoctorFinding& each : findings)
            EXPECT_FALSE(each.why.empty() || each.fix.empty() || each.ranks.empty())
                << text_of({each});
    }
}

TEST(DoctorChecks, TakeALinkForSlowWhereBothEndsDo) {
    Job job = test::job_of(test::node_of("two-socket"), 3, 1);
    job[0].self_test->slow_pairs = {{2, 1e9}};
    EXPECT_THAT(found("T2", job), IsEmpty());
    job[2].self_test->slow_pairs = {{1, 1e9}, {0, 1e9}};
    const auto findings = found("T2", job);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].ranks, ElementsAre(0, 2));
}

/// Gigabit Ethernet at its own speed, and a stream over one that is too fast for it.
TEST(DoctorChecks, TakeALinkForSlowThatIsFarBelowItsInterface) {
    for (const auto& [bytes_per_s, mbps] : {std::pair(1.12e8, 1000.0), std::pair(1.2e8, 0.0)}) {
        Job job = cpu_job();
        job[0].self_test->slow_pairs = {{2, bytes_per_s}};
        job[2].self_test->slow_pairs = {{0, bytes_per_s}};
        for (DoctorFacts& facts : job)
            for (NetworkInterface& each : facts.node.interfaces) each.speed_mbps = mbps;
        EXPECT_THAT(found("T2", job), IsEmpty()) << bytes_per_s;
        for (DoctorFacts& facts : job)
            for (NetworkInterface& each : facts.node.interfaces) {
                each.speed_mbps = 10000;
                each.is_virtual = true;
                each.kind = InterfaceKind::veth;
            }
        EXPECT_THAT(found("T2", job), IsEmpty()) << "a virtual interface's word";
    }
}

TEST(DoctorChecks, CompareNoRanksThatTakeTurnsOnACore) {
    Job job = small_job();
    for (DoctorFacts& facts : job) facts.node.allowed_cpus = {0};
    job[1].self_test->step_s.assign(24, 0.009);
    job[1].load->computed_s = 0.1;
    EXPECT_THAT(found("T5", job), IsEmpty());
    EXPECT_THAT(found("C8", job), IsEmpty());
    EXPECT_THAT(found("C2", job), SizeIs(1));
}

TEST(DoctorChecks, HaveACaseEach) {
    std::set<std::string> tested;
    for (const Sick& sick : all_cases()) tested.insert(sick.id);
    for (const DoctorCheck& each : doctor_checks())
        EXPECT_TRUE(tested.contains(std::string(each.id))) << each.id;
    EXPECT_EQ(tested.size(), doctor_checks().size());
    EXPECT_GE(doctor_checks().size(), 55u);
}

TEST(DoctorChecks, HaveAParagraphEach) {
    const std::string page = content_of(LOCKSTEP_DOCTOR_PAGE);
    for (const DoctorCheck& each : doctor_checks()) {
        EXPECT_THAT(page, HasSubstr(fmt::format("<a id=\"{}\"></a>", each.id)));
        EXPECT_THAT(page, HasSubstr(fmt::format("**{}: {}**", each.id, each.title)));
    }
}

TEST(Doctor, FindsNothingWrongInHealthyJobs) {
    for (const auto job : {gpu_job, cpu_job, small_job, test::laptop, test::container}) {
        auto findings = run_checks(job());
        std::erase_if(findings, [](auto& each) { return each.severity == Severity::info; });
        EXPECT_EQ(text_of(findings), "");
    }
}

TEST(Doctor, FindsNoErrorOnAnyFixtureThatTrainsOnCpus) {
    for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_TOPOLOGIES))
        EXPECT_FALSE(has_errors(run_checks(test::job_of(load_topology(entry.path()), 1, 2))))
            << entry.path() << "\n"
            << text_of(run_checks(test::job_of(load_topology(entry.path()), 1, 2)));
}

TEST(Doctor, LeavesGpusAloneWhereRanksTrainOnCpus) {
    Job job = gpu_job();
    for (DoctorFacts& facts : job) {
        facts.plan.uses_gpus = false;
        facts.gpu = job[0].gpu;
    }
    EXPECT_THAT(run_checks(job, {.only = {"G"}}), IsEmpty());
}

TEST(Doctor, FoldsEqualFindingsOverRanks) {
    Job job = gpu_job();
    for (DoctorFacts& facts : job) facts.node.limits.locked_memory_bytes = 65536;
    const auto findings = found("F5", job);
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].ranks, SizeIs(16));
    EXPECT_THAT(findings_text(findings, 1), HasSubstr("(ranks 0-15 on dgx0, dgx1)"));
}

TEST(Doctor, PutsErrorsFirst) {
    Job job = small_job();
    job[0].node.allowed_cpus = job[1].node.allowed_cpus = {0};
    job[0].program.thread_level = 0;
    const auto findings = run_checks(job);
    ASSERT_GE(findings.size(), 2u);
    EXPECT_EQ(findings[0].id, "D6");
    EXPECT_TRUE(has_errors(findings));
}

TEST(Doctor, RunsOnlyWhatIsSelected) {
    const auto ids = [](const DoctorSelection& selection) {
        std::string text;
        for (const DoctorCheck* each : selected_checks(selection))
            text += std::string(each->id) + " ";
        return text;
    };
    EXPECT_EQ(ids({.only = {"g2", "T"}, .skip = {"T3"}}), "G2 T1 T2 T4 T5 ");
    EXPECT_EQ(ids({.only = {"T"}, .slowest = Pace::fast}), "");
    EXPECT_EQ(caught_code([&] { ids({.only = {"G77"}}); }), "E614");
    EXPECT_EQ(caught_code([&] { ids({.skip = {"hello"}}); }), "E614");
}

TEST(Doctor, ShowsInfoOnlyToPrograms) {
    Job job = small_job();
    job[0].node.kernel.ptrace_scope = 1;
    const auto findings = found("L5", job);
    EXPECT_EQ(findings_text(findings, 1), "doctor: 1 check looked, all is well\n");
    const Json json = parse_json(findings_json(findings, 1, 2), "findings");
    EXPECT_EQ(json.at("findings").at(0).at("id"), "L5");
    EXPECT_EQ(json.at("errors"), 0);
}

TEST(Doctor, SaysWhichNetworkJoinsNodesAndWhatIsLeftOut) {
    Job job = cpu_job();
    job[0].network = {0.0, 1, {}, {"cpu1"}};
    job[2].network = {0.0, 1, {{"cpu0", "10.1.0.1", "no answer in 2 s"}}, {}};
    EXPECT_EQ(network_text(job),
              "network: 10.1.0.0/16 joins all nodes, 1 of 2 connections open; left out: lo "
              "(loopback)\n");
    EXPECT_EQ(network_text(small_job()), "");
}

TEST(Doctor, ExcludesHostsThatAreAtFaultThemselves) {
    Job job = gpu_job();
    job[9].node.gpus[2].health.ecc_uncorrected = 4;
    EXPECT_THAT(hosts_to_exclude(run_checks(job), job), ElementsAre("dgx1"));
    job[9].shared_memory.free_bytes = 64u << 20;
    EXPECT_THAT(hosts_to_exclude(found("L1", job), job), ElementsAre("dgx1"));
    for (DoctorFacts& facts : job) facts.node.limits.locked_memory_bytes = 65536;
    EXPECT_THAT(hosts_to_exclude(found("F5", job), job), IsEmpty());
    job[0].program.thread_level = 0;
    EXPECT_THAT(hosts_to_exclude(found("D6", job), job), IsEmpty());
}

TEST(Doctor, KeepsTerminalEscapesOut) {
    Job job = small_job();
    job[0].program.launcher_messages = {"PMIX ERROR \x1b[31m"};
    EXPECT_THAT(findings_text(found("D8", job), 1), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace lockstep
