// SPDX-License-Identifier: Apache-2.0
// Training on GPUs, which are simulated (tests/simcuda): the program is the one that users run.
#include "lockstep/core/clock.hpp"

#include "program.hpp"
#include "simulated_gpus.hpp"

#include <algorithm>
#include <csignal>

namespace lockstep::test {
namespace {

class Device : public RunsTest {};

// All layers and buckets of the usual cnn-bn, with a quarter of its parameters.
const Words cnn_bn = typed("--model cnn-bn --channels 32,64,128");

Words train(const fs::path& run, const Words& more, const std::string& steps = "6") {
    return typed(
               "train --data % --run % --batch 24 --virtual-ranks 4 --max-steps % "
               "--checkpoint-every 2steps",
               {train_data(), run, steps}) +
           more;
}

// One rank comes by mpirun, too: the simulation's NCCL moves bytes by MPI.
ProcessResult run_on(int ranks, const Words& words, const Variables& variables = {}) {
    if (ranks > 1) return run_lockstep(words + on_ranks(ranks), with_gpus(variables));
    return run_under_mpirun(1, words, with_gpus(variables));
}

ProcessResult verify(const Words& options, const Variables& variables = {}) {
    return run_lockstep(
        typed("verify --data % --device cuda --steps 4 --batch 24 --virtual-ranks 4",
              {train_data()}) +
            options,
        with_gpus(variables));
}

void expect_equal(const ProcessResult& result) {
    EXPECT_THAT(result, ends(0, "equal: the same bits for every number of ranks"));
}

// Computed once, with streams that are never late.
const ProcessResult& of_prompt_streams() {
    static const ProcessResult result = verify(typed("--ranks 1,3,4") + cnn_bn);
    return result;
}

// The heads of the table that `verify` prints, and its row of one rank.
std::string first_lines(const ProcessResult& verified) {
    const std::string& table = verified.output;
    return table.substr(0, table.find('\n', table.find('\n') + 1));
}

// Work of every stream is late by up to half a millisecond.
TEST_F(Device, GivesEqualBitsOnAnyNumberOfGpusHoweverLateTheirStreamsAre) {
    expect_equal(of_prompt_streams());
    for (const char* seed : {"1", "2"}) {
        const auto late = verify(typed("--ranks 1,2") + cnn_bn,
                                 {{"SIMCUDA_DELAY_US", "500"}, {"SIMCUDA_SEED", seed}});
        expect_equal(late);
        EXPECT_EQ(first_lines(late), first_lines(of_prompt_streams()));
    }
}

// Each optimizer is in simcuda/update.
TEST_F(Device, GivesEqualBitsWithWhatNeedsTheSumsOfItsStep) {
    expect_equal(verify(typed("--ranks 1,2 --model mlp --optimizer lamb --weight-decay 0.01") +
                        typed("--ema 0.9 --clip-norm 1")));
}

TEST_F(Device, GivesEqualBitsInHalfPrecision) {
    expect_equal(
        verify({"--ranks", "1,3", "--model", "mlp", "--precision", "fp16", "--clip-norm", "1"}));
}

// The simulated GPUs round factors as real ones do.
TEST_F(Device, ComputesInTf32WhereTheGpuHasIt) {
    const Words model = typed("--ranks 1,2") + cnn_bn, tf32 = typed("--precision tf32");
    const auto exact = verify(model + typed("--precision fp32"));
    expect_equal(exact);
    EXPECT_NE(first_lines(exact), first_lines(of_prompt_streams())) << "tf32 by default";
    const Variables old = {{"SIMCUDA_CAPABILITY", "7"}};
    EXPECT_EQ(first_lines(verify(model, old)), first_lines(exact));
    EXPECT_EQ(first_lines(verify(model + tf32)), first_lines(of_prompt_streams()));
    for (const auto& result :
         {verify(model + tf32, old),
          run_lockstep(train(run_, typed("--device cpu") + tf32), with_gpus())})
        EXPECT_THAT(result, ends(64, "--precision tf32 has no effect here"));
    EXPECT_FALSE(fs::exists(run_));
}

// By default they agree, and a run keeps what it began with.
TEST_F(Device, ComputesInOnePrecisionOnAllRanksAndAfterAResume) {
    const Words mlp = typed("--device cuda --model mlp");
    const std::string note = "precision tf32: ", fp32 = "\"precision\": \"fp32\"";
    EXPECT_THAT(run_on(2, train(folder_ / "mixed", mlp), {{"SIMCUDA_CAPABILITY", "1:7"}}),
                ends(0, Not(has(note))));
    EXPECT_THAT(content_of(folder_ / "mixed/run.json"), has(fp32));
    EXPECT_THAT(run_on(2, train(folder_ / "mixed", mlp, "8")),
                ends(0, "resumed from step", Not(has(note))));
    EXPECT_THAT(run_on(2, train(run_, mlp)), ends(0, note));
    EXPECT_THAT(run_on(2, train(run_, mlp + typed("--precision fp32"), "8")), fails("error E306"));
}

// What rank 0 has started by each time that its host waited.
std::vector<int> counts_of_host(const fs::path& file) {
    std::ifstream lines(file.string() + ".0");
    std::vector<int> counts;
    for (int waits = 0, started = 0; lines >> waits >> started;) counts.push_back(started);
    return counts;
}

// What the second half of a run's steps adds to the calls in which CUDA lets rank 0 wait: samples
// and phases have an event each. The wait for the loss looks again and again, outside CUDA. Each
// optimizer is in simcuda/update.
TEST_F(Device, WaitsTwiceAStepInCudaWhateverItsUpdateNeeds) {
    int runs = 0;
    const auto waits = [&](const Words& options, const std::string& steps) {
        const fs::path run = folder_ / std::to_string(runs++), file = run.string() + "-waits";
        Words words = train(run, Words{"--device", "cuda", "--model", "mlp"} + options, steps);
        std::ranges::replace(words, "2steps", "never");
        EXPECT_THAT(run_on(2, words, {{"SIMCUDA_WAITS", file}}), ends(0));
        return static_cast<double>(counts_of_host(file).size());
    };
    const auto of_a_step = [&](const Words& options) {
        return (waits(options, "8") - waits(options, "4")) / 4.0;
    };
    for (const Words& options :
         {Words{"--optimizer", "lamb", "--clip-norm", "1", "--precision", "fp16"}, {}})
        EXPECT_EQ(of_a_step(options), 2) << testing::PrintToString(options);
    EXPECT_GT(of_a_step({"--noise-scale-every", "1"}), 2) << "gradients are looked at";
}

// What the host starts in a step of a lone rank with all leaves: it waits twice in each of the last
// steps. How many rehearsals there are before the first one is a matter of time.
struct StepOfOneRank {
    int launches = 0;
    std::string hash;  ///< of the parameters at the run's end
};

StepOfOneRank step_of_one_rank(const fs::path& folder,
                               const std::string& leaves,
                               const Words& options,
                               Variables variables = {}) {
    const fs::path run = folder / fmt::format("{}{}", fmt::join(options, ""), variables.size()),
                   file = run.string() + leaves;
    const Words words = typed(
        "train --data % --run % --max-steps 9 --checkpoint-every never "
        "--device cuda --model cnn-bn --batch 32 --virtual-ranks %",
        {train_data(), run, leaves});
    variables["SIMCUDA_WAITS"] = file;
    const auto trained = run_on(1, words + options, variables);
    EXPECT_THAT(trained, ends(0));
    const std::vector<int> counts = counts_of_host(file);
    std::vector<int> added;
    for (std::size_t i = counts.size() - 13; i < counts.size(); ++i)
        added.push_back(counts[i] - counts[i - 2]);
    std::ranges::nth_element(added, added.begin() + 6);
    return {added[6], printed_hash(trained.output)};
}

// Room to grow costs the host nothing where leaves together are replayed. One of the parameters is
// too large for its gradients to wait for others.
TEST_F(Device, StartsNoMoreForEightReplayedLeavesThanForOne) {
    const auto step =
        [&](const std::string& leaves, const char* options, const Variables& variables = {}) {
            return step_of_one_rank(folder_.path(), leaves, typed(options), variables);
        };
    const int one = step("1", "--graph off").launches;
    const auto replayed = step("8", "--leaves together --graph on");
    EXPECT_LT(replayed.launches, 1.3 * one);
    const auto computed = step("8", "--leaves together --graph off");
    EXPECT_GT(computed.launches, 3 * one);
    EXPECT_LT(computed.launches, 3.3 * one) << "batch norms go at once";
    const std::string hash = step("8", "--leaves one-by-one --graph off").hash;
    // Eight leaves of 32 channels at once.
    const auto apart = step("8", "--leaves together --graph off", {{"SIMCUDA_WIDE_NORM", "256"}});
    EXPECT_GT(apart.launches, computed.launches) << "other bits at once: batch norms go by leaf";
    EXPECT_THAT((std::vector{replayed.hash, computed.hash, apart.hash}), testing::Each(hash));

    const char* const convolutions = "--leaves together --graph off --no-bias --precision fp32";
    const auto grouped = step("8", convolutions);
    const auto by_leaf = step("8", convolutions, {{"SIMCUDA_GROUPS", "8"}});
    EXPECT_EQ(by_leaf.launches, grouped.launches + 5) << "8, or one and two copies";
    EXPECT_EQ(by_leaf.hash, grouped.hash);
}

// A run that may roll back leaves no period out.
TEST_F(Device, SavesTheSameBytesBesideItsStepsHoweverLateItsStreamsAre) {
    for (const char* mode : {"blocking", "overlapped"})
        EXPECT_THAT(run_on(2,
                           train(folder_ / mode,
                                 typed("--device cuda --on-nonfinite rollback "
                                       "--checkpoint-mode %",
                                       {mode}) +
                                     cnn_bn),
                           {{"SIMCUDA_DELAY_US", "500"}}),
                    ends(0));
    for (const char* step : {"step-000002", "step-000004", "step-000006"})
        expect_same_files(folder_ / "overlapped/ckpt" / step, folder_ / "blocking/ckpt" / step);
}

TEST_F(Device, GivesOtherBitsWithPlainSums) {
    EXPECT_THAT(verify({"--ranks", "1,2", "--model", "mlp", "--plain"}),
                ends(0, EndsWith("different, as ordinary summation is expected to be\n")));
}

// What is recorded once and replayed is what is computed: with late streams, micro-batches and half
// precision. The rehearsal has dropout's numbers, too.
TEST_F(Device, GivesTheSameBitsWhereLeavesAreReplayed) {
    struct Case {
        Words words;
        Variables variables;
        std::vector<int> ranks;
    };
    const std::vector<Case> cases = {
        {cnn_bn, {{"SIMCUDA_DELAY_US", "300"}}, {1, 3}},
        {cnn_bn + Words{"--leaves", "together"}, {{"SIMCUDA_DELAY_US", "300"}}, {1, 2}},
        {{"--model", "mlp", "--micro-batches", "2"}, {}, {3}},
        {{"--model", "mlp", "--precision", "fp16"}, {}, {1}}};
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto run_with = [&](const std::string& graph, int ranks) {
            const fs::path run = folder_ / fmt::format("{}{}{}", graph, i, ranks);
            const Words more{"--device", "cuda", "--graph", graph};
            return run_on(ranks, train(run, cases[i].words + more), cases[i].variables);
        };
        const auto computed = run_with("off", 2);
        for (const int ranks : cases[i].ranks) {
            const auto replayed = run_with("on", ranks);
            EXPECT_THAT(replayed,
                        says(ContainsRegex("graph: leaves (together )?are recorded once and "
                                           "replayed"),
                             Not(has("AccumulateGrad"))));
            EXPECT_EQ(printed_hash(replayed.output), printed_hash(computed.output))
                << replayed.output;
        }
    }
}

// An operator for which the host waits, say, at first or only later.
TEST_F(Device, ComputesLeavesAsAlwaysWhereTheyCannotBeRecorded) {
    const auto run_with = [&](const std::string& name, const Words& more, const char* refuses) {
        const Words words{"--device", "cuda", "--model", "mlp", "--leaves", "one-by-one"};
        return run_on(1, train(folder_ / name, words + more), {{"SIMCUDA_REFUSE", refuses}});
    };
    const auto computed = run_with("off", {"--graph", "off"}, "1");
    EXPECT_THAT(computed.output, Not(has("graph")));
    const auto fallen = run_with("auto", {}, "5");
    EXPECT_THAT(fallen,
                says("graph: off, the model does what cannot be recorded: CUDA error: "
                     "operation not permitted when stream is capturing"));
    const auto later = run_with("later", {"--graph", "on"}, "45");
    EXPECT_THAT(
        later,
        says("graph: leaves are recorded once", "graph: leaves are computed as always from step"));
    for (const auto& result : {computed, fallen, later})
        EXPECT_EQ(printed_hash(output_of(result)), printed_hash(computed.output));
    EXPECT_THAT(run_with("on", {"--graph", "on"}, "5"),
                ends(64, "error E103: this rank's leaves cannot be recorded"));
    EXPECT_THAT(run_lockstep(train(folder_ / "cpu", {"--graph", "on", "--model", "mlp"})),
                says("  why: it is for GPUs"));
}

Json network_event(const fs::path& run) {
    for (const Json& line : json_lines(run / "logs/i1/rank-00000.jsonl"))
        if (line.at("event") == "network") return line;
    return {};
}

// By NCCL's own report, which goes to the run's logs.
void expect_way_between_three_ranks(const fs::path& run, const std::string& output) {
    EXPECT_THAT(output, has("network: 3 ranks on 1 node: shared memory\n", Not(has("NCCL INFO"))));
    EXPECT_THAT(read_file(run / "logs/i1/nccl-00002.log"),
                has("Channel 00 : 2[2] -> 0[0] via SHM/direct/direct"));
    EXPECT_THAT(read_file(run / "logs/i1/rank-00001.log"),
                has("NCCL sends to ranks 0,2 by shared memory"));
    const Json event = network_event(run);
    EXPECT_EQ(event.at("not_reported").get<int>(), 0);
    EXPECT_EQ(event.at("transports").at(0).at("kind"), "shared memory");
    EXPECT_EQ(event.at("transports").at(0).at("pairs").get<int>(), 6);
}

TEST_F(Device, SaysWhichWayNcclTakesAndGivesTheSameBitsOnSeveralNodesAndAfterAResume) {
    const Words words = typed("--device cuda --optimizer adamw") + cnn_bn;
    const std::string whole = output_of(run_on(3, train(folder_ / "whole", words)));
    EXPECT_THAT(whole, has("by nccl"));
    expect_way_between_three_ranks(folder_ / "whole", whole);
    EXPECT_THAT(content_of(folder_ / "whole" / "run.json"), has("CUDA 13.0, cuDNN 9.10.2"));
    // What is added inside a node first has the bits of one node; hosts are apart as NCCL has it.
    const std::string line = "export NCCL_HOSTID=n$((OMPI_COMM_WORLD_RANK / 2)); exec \"$@\"";
    const std::string two =
        output_of(run_process(mpirun_words(4) + Words{"bash", "-c", line, "bash", program()} +
                                  train(folder_ / "two", words),
                              with_gpus({{"SIMCUDA_DELAY_US", "300"}}),
                              ample_s));
    EXPECT_THAT(two, has("network: 4 ranks on 2 nodes"));
    EXPECT_EQ(printed_hash(two), printed_hash(whole));
    EXPECT_THAT(run_on(2, train(folder_ / "cut", words, "3")),
                says("leaves: 2 a rank of 6 samples, computed together",
                     ContainsRegex("graph: .*; samples/s: computed together [0-9,]+, "
                                   "computed one by one [0-9,]+, replayed one by one "
                                   "[0-9,]+"),
                     Not(has("replayed together"))));  // other ranks wait for gradients
    const std::string resumed = output_of(run_on(4, train(folder_ / "cut", words)));
    EXPECT_THAT(resumed, has("resumed from step"));
    EXPECT_EQ(printed_hash(resumed), printed_hash(whole));
    // Where the weights are decides bits.
    EXPECT_THAT(
        run_lockstep(train(folder_ / "cut", Words{"--device", "cpu"} + cnn_bn + on_ranks(2))),
        ends(78, "device"));
}

// Two hosts of one machine that have an RDMA port in /sys, and an NCCL that finds none.
TEST_F(Device, WarnsOfRdmaThatIsThereAndUnused) {
    const std::string script = "class=$(mktemp -d) && " LOCKSTEP_MADE_UP_RDMA
                               " Ethernet eth0 \"$class\" && \"$@\"; "
                               "code=$?; umount /sys/class; rm -rf \"$class\"; exit $code";
    Words line = {LOCKSTEP_TWO_HOSTS, "a:2,b:1", "--", "mpirun"};
    for (const auto& [name, value] : with_gpus()) line = line + Words{"-x", name};
    line = line + Words{"unshare", "--mount", "sh", "-c", script, "sh", program()} +
           train(run_, {"--device", "cuda", "--model", "mlp"}, "2");
    const auto run = run_process(line, with_gpus(), ample_s);
    if (run.exit_code == 77) GTEST_SKIP() << "needs root: " << run.output;
    EXPECT_THAT(run,
                ends(0,
                     "network: 3 ranks on 2 nodes: shared memory inside nodes; sockets (lo) "
                     "between\n",
                     "RDMA hardware mlx5_0:1 is active on a, b, but NCCL sends between nodes "
                     "over sockets: NCCL finds no RDMA device that it may use; fix: ",
                     "warn: F6: neither nvidia_peermem nor"))
        << "GPUs count";
}

TEST_F(Device, LeavesNcclsReportWhereTheUserHasIt) {
    const Words words = {"--device", "cuda", "--model", "mlp"};
    EXPECT_THAT(run_on(2, train(folder_ / "quiet", words), {{"NCCL_DEBUG", "WARN"}}),
                says("not reported: NCCL_DEBUG=WARN is set"));
    EXPECT_FALSE(fs::exists(folder_ / "quiet/logs/i1/nccl-00000.log"));
    EXPECT_THAT(run_on(2, train(folder_ / "loud", words), {{"NCCL_DEBUG", "INFO"}}),
                says("NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM",
                     "not reported: NCCL_DEBUG=INFO sends NCCL's report to"));
    EXPECT_THAT(run_on(2,
                       train(folder_ / "own", words),
                       {{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", folder_ / "nccl.%h.%p"}}),
                says("network: 2 ranks on 1 node: shared memory\n"));
    EXPECT_FALSE(fs::exists(folder_ / "own/logs/i1/nccl-00000.log"));
}

/// A time-out for what does not end by itself; a busy machine's ranks may be off their cores for
/// some of it.
constexpr const char* stuck_s = "8s";

struct Fault {
    std::string variable, value, code, says;
    std::string comm_timeout = "200s";
};

const Words on_gpus{"--device", "cuda", "--model", "mlp"};

// Of any number of GPUs; computed once.
const std::string& undisturbed_hash_on_gpus() {
    static const std::string hash = [] {
        const TempDir folder;
        return printed_hash(output_of(run_on(2, train(folder / "run", on_gpus))));
    }();
    return hash;
}

// All ranks end in time, of which most is what they take to start; the message says what it should.
void expect_named(const fs::path& run, int ranks, const Fault& fault) {
    const double begin_s = now_s();
    EXPECT_THAT(run_on(ranks,
                       train(run, on_gpus + Words{"--comm-timeout", fault.comm_timeout}),
                       {{fault.variable, fault.value}}),
                fails(ContainsRegex("error " + fault.code + ": (.|\n)*" + fault.says)))
        << fault.variable;
    EXPECT_LT(now_s() - begin_s, 100) << fault.variable;
}

// The same command goes on from the last checkpoint to the parameters of an undisturbed run.
void expect_resumed_on_gpus(const fs::path& run, int ranks) {
    const auto again = run_on(ranks, train(run, on_gpus));
    EXPECT_EQ(printed_hash(again.output), undisturbed_hash_on_gpus()) << again.output;
}

// On rank 1 of two. Starts of one run that cannot go well come first, and then what goes wrong in
// the middle of training. The first rank to say so ends the others: E682 repeats it.
TEST_F(Device, NamesWhatGoesWrongAndGoesOnFromTheLastCheckpoint) {
    for (const Fault& fault :
         {Fault{"SIMCUDA_GPUS", "1", "E608", "would share GPU"},
          Fault{"SIMCUDA_NCCL_VERSION", "1:22703", "E674", "2.27.3 on rank 1"},
          Fault{"SIMCUDA_MEMORY", "1:1000000", "(E696|E682)", "rank 1"},
          Fault{"SIMCUDA_LOST", "1:200", "(E681|E682)", "rank 1"},  // in a rehearsal
          Fault{"SIMCUDA_KILL", "1:14", "E660", "rank 1"}})
        expect_named(run_, 2, fault);
    expect_resumed_on_gpus(run_, 2);
    expect_named(folder_ / "lost", 2, {"SIMCUDA_LOST", "1:1500", "(E681|E682)", "rank 1"});
    expect_resumed_on_gpus(folder_ / "lost", 2);
}

// LibTorch goes on with a kernel that has other bits: of the canary, of a rehearsal, of a step.
TEST_F(Device, EndsWhereAConvolutionGetsNoWorkspace) {
    const Words words = typed("--device cuda --model cnn --precision fp32");
    const Words rehearses_nothing = typed("--leaves one-by-one --graph off");
    const auto without = [&](const std::string& convolution, const Words& more) {
        const fs::path run = folder_ / convolution;
        return run_on(2, train(run, words + more), {{"SIMCUDA_NO_WORKSPACE", convolution}});
    };
    EXPECT_THAT(without("1:1", {}), fails("error E707", "rank 1 on"));
    EXPECT_THAT(without("1:20", {}), fails("leaves: 2 a rank", "error E696", "(rank 1 only)"));
    EXPECT_THAT(without("1:40", rehearses_nothing), fails("error E696", "(rank 1 on "));
}

// The hosts of all ranks are in the same collective. Group 14 publishes, 15 sums a bucket; each
// step has one sum of rank 1.
TEST_F(Device, NamesTheRankWhoseGpuIsStuck) {
    const std::string stuck = "the GPU of rank 1 .* is ";
    for (const Fault& fault :
         {Fault{"SIMCUDA_HANG", "1:14", "E660", stuck + "stuck in gradients #", stuck_s},
          Fault{"SIMCUDA_HANG", "1:15", "E660", stuck + "stuck in gradients #", stuck_s},
          Fault{"SIMCUDA_STALL",
                "1:5",
                "E660",
                stuck + "still in other work before gradients #",
                stuck_s}})
        expect_named(folder_ / (fault.variable + fault.value), 3, fault);
    expect_resumed_on_gpus(folder_ / "SIMCUDA_STALL1:5", 3);
}

// Of two ranks each misses the other's part; and of NCCL's own sums nobody sees parts.
TEST_F(Device, NamesNobodyWhereNoGpuStandsOut) {
    expect_named(
        folder_ / "two",
        2,
        {"SIMCUDA_HANG", "1:14", "E660", "nothing arrives between rank 0 .* and rank 1 ", stuck_s});
    expect_resumed_on_gpus(folder_ / "two", 2);
    const Words plain = on_gpus + Words{"--comm-timeout", stuck_s, "--plain"};
    EXPECT_THAT(
        run_on(3, train(folder_ / "plain", plain), {{"SIMCUDA_HANG", "1:15"}}),
        says(ContainsRegex("error E660: the GPUs of ranks 0-2 are in gradients #.*\n.*not known")));
}

TEST_F(Device, NamesARankThatIsStopped) {
    const fs::path run = run_;
    Words words{"env"};
    for (const auto& [name, value] : with_gpus()) words.push_back(name + "=" + value);
    const Words more = on_gpus + Words{"--comm-timeout", stuck_s} + on_ranks(2);
    words = words + Words{program()} + train(run, more, "1000000");
    std::ranges::replace(words, "2steps", "never");  // a rank that saves is waited for
    Background job(words, folder_ / "output");
    ASSERT_TRUE(eventually([&] { return job.has_ended() || newest_step(run) > 0; }, 60));
    const auto ranks = children_of(children_of(job.pid()).front());
    ASSERT_EQ(ranks.size(), 2u);
    ::kill(ranks.back(), SIGSTOP);
    EXPECT_EQ(job.wait(100), 76);
    EXPECT_THAT(content_of(folder_ / "output"),
                ContainsRegex("error E660: rank 1 .*is stopped \\(state T\\)"));
}

// Of a GPU that holds one leaf's pass, but not that of all leaves.
TEST_F(Device, ComputesLeavesOneByOneWhereItsMemoryEnds) {
    const auto result = [&](const std::string& name, const Variables& variables) {
        return run_on(2,
                      typed("train --data % --run % --device cuda --model cnn --batch 256 "
                            "--virtual-ranks 8 --max-steps 2",
                            {train_data(), folder_ / name}),
                      variables);
    };
    const auto roomy = result("roomy", {}),
               narrow = result("narrow", {{"SIMCUDA_MEMORY", "80000000"}});
    EXPECT_THAT(roomy, says("computed together"));
    EXPECT_THAT(narrow, ends(0, "computed one by one: comparing takes more than the GPU's memory"));
    EXPECT_EQ(printed_hash(narrow.output), printed_hash(roomy.output));
}

TEST_F(Device, IsAGpuByItselfWhereEachRankHasOne) {
    const Words words{"--model", "mlp"}, test{"--test-data", test_data()};
    EXPECT_THAT(run_on(2, train(run_, words + test)), ends(0, "by nccl"));
    EXPECT_THAT(run_on(2, train(folder_ / "shared", words), {{"SIMCUDA_GPUS", "1"}}),
                ends(0, "GPUs are left idle"));
}

TEST_F(Device, IsRefusedWhereThereIsNone) {
    EXPECT_THAT(run_lockstep(train(run_, {"--device", "cuda"})), fails("error E670"));
    EXPECT_FALSE(fs::exists(run_));
}

}  // namespace
}  // namespace lockstep::test
