// SPDX-License-Identifier: Apache-2.0
// What a training does before its first step and around each, without a model: so that many ranks
// fit on one machine.
//   mpirun -np P bench_at_scale run FOLDER   each part of a start: seconds of its slowest rank, and
//                                            what mpi_tally.hpp says of rank 0; MiB of rank 0 and
//                                            of the largest of the others
//   bench_at_scale root P                    seconds of what rank 0 of P ranks does with the facts
//                                            that all sent it, and MiB, on a machine of its own
// Both print one JSON object.
#include "lockstep/cluster/doctor.hpp"
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/placement.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/launch/examine.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"
#include "lockstep/run/watchdog.hpp"

#include "mpi_tally.hpp"

#include <array>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

namespace {

using namespace lockstep;

constexpr std::int64_t steps = 10;
constexpr std::array<std::size_t, 2> tensors = {64u << 10, 4u << 10};

/// Parts of a start, each measured from a barrier to the end of its slowest rank.
class Parts {
  public:
    explicit Parts(const Communicator& ranks) : ranks_(ranks) {}

    template <class Work>
    void measure(const char* name, Work&& work) {
        ranks_.barrier();
        const MpiTally before = mpi_tally();
        const double begin_s = now_s();
        work();
        const double wall_s = now_s() - begin_s;
        const MpiTally after = mpi_tally();
        parts_[name] = {{"wall_s", largest(1e6 * wall_s) * 1e-6},
                        {"own_s", after.own_s - before.own_s},
                        {"in_mpi_s", after.in_mpi_s - before.in_mpi_s},
                        {"bytes", after.bytes - before.bytes}};
    }

    /// Collective.
    Json json() const {
        const auto peak = static_cast<double>(memory_use().peak_resident_bytes);
        const double others = largest(ranks_.is_root() ? 0 : peak);
        return {{"ranks", ranks_.size()},
                {"parts", parts_},
                {"peak_mib", peak / (1 << 20)},
                {"others_mib", others / (1 << 20)}};
    }

  private:
    double largest(double value) const {
        std::array<std::int64_t, 1> whole = {std::llround(value)};
        ranks_.all_reduce_max(whole);
        return static_cast<double>(whole[0]);
    }

    const Communicator& ranks_;
    Json parts_ = Json::object();
};

/// A run's directory, logs and flight records, as train keeps them.
class Run {
  public:
    Run(const Communicator& ranks, fs::path root) : ranks_(ranks), paths_{std::move(root)} {}

    void open() {
        const std::string number = from_root(ranks_, [&] {
            directory_.emplace(RunDirectory::open(paths_.root));
            directory_->create({});
            return std::to_string(directory_->begin_incarnation());
        });
        incarnation_ = std::stoll(number);
    }

    void open_logs(const std::string& host) {
        agree(ranks_, [&] {
            open_log({.rank = ranks_.rank(),
                      .world_size = ranks_.size(),
                      .start = incarnation_,
                      .host = host,
                      .directory = paths_.logs(incarnation_),
                      .terminal_level = Level::error,
                      .keeps_stderr = true});
        });
    }

    void measure_clocks() {
        const ClockOffset offset =
            measure_clock_offset(ranks_, ranks_.split_by_node(), unix_time_s);
        log_event(ClockEvent{offset.ahead_s, offset.error_s});
    }

    void start_flight() {
        agree(ranks_, [&] {
            recorder_.emplace(paths_.flight(incarnation_), ranks_.rank(), ranks_.size());
            watchdog_ = std::make_unique<Watchdog>(
                *recorder_, WatchdogSettings::within(600), [](const WatchReport&) {});
        });
    }

    FlightRecorder& recorder() { return *recorder_; }

    /// Each with its sum, its budget and a line in the log.
    void train(Exchange& exchange, Reducer& reducer) {
        StepBudgetFile budgets(step_budgets_path(paths_.logs(incarnation_), ranks_.rank()));
        recorder_->mark_running();
        PhaseClock clock;
        log_event(FirstStepEvent{1});
        for (std::int64_t step = 1; step <= steps; ++step) {
            {
                const PhaseScope scope(clock, Phase::backward);
                reducer.begin_step();
                reducer.begin_leaf();
                for (std::size_t i = 0; i < tensors.size(); ++i) reducer.add(i);
                reducer.end_leaf();
            }
            {
                const PhaseScope scope(clock, Phase::comm);
                reducer.finish();
                exchange.publish();
            }
            clock.reassign(Phase::comm, Phase::wait, exchange.take_wait_s());
            report(step, clock.take(), budgets);
        }
        if (directory_)
            directory_->write_state({.phase = RunPhase::complete,
                                     .step = steps,
                                     .reason = "all steps are done",
                                     .steps_total = steps});
        recorder_->mark_finished();
    }

  private:
    void report(std::int64_t step, const PhaseSeconds& phases, StepBudgetFile& budgets) const {
        budgets.add({step, unix_time_s(), phases});
        StepsEvent event{.report = {.step = step, .phases = phases}};
        event.wall_s = phases.sum();
        log_event(event);
        write_log(
            Level::info, Audience::here, step_line(event.report), fmt::format("step {}", step));
    }

    const Communicator& ranks_;
    RunPaths paths_;
    std::optional<RunDirectory> directory_;
    std::int64_t incarnation_ = 0;
    std::optional<FlightRecorder> recorder_;
    std::unique_ptr<Watchdog> watchdog_;
};

/// Collective. As Job::introduce() does.
void gather_rows(const Communicator& ranks, const NodeFacts& node) {
    std::vector<RankRow> rows;
    for (const std::string& text : ranks.all_gather(serialize(make_rank_row(node, ranks.rank()))))
        rows.push_back(deserialize<RankRow>(text, "rank row"));
    cpu_share(rows, ranks.rank());
}

void start_and_train(const Communicator& ranks, const fs::path& root) {
    Parts parts(ranks);
    const RankFacts facts;
    const PlacementRules rules{.cores = SharingRule::allow, .compute_on = ComputeOn::cpus};
    parts.measure("reading the node", [&] { facts.node(); });
    parts.measure("placement", [&] { place_live(ranks, facts, rules); });
    parts.measure("preflight", [&] {
        run_preflight(ranks, facts, {.run_folder = root}, {"C", "G"});
    });
    const NodeFacts node = read_node_facts();
    Run run(ranks, root);
    parts.measure("run directory", [&] { run.open(); });
    parts.measure("logs", [&] { run.open_logs(node.host); });
    parts.measure("clocks", [&] { run.measure_clocks(); });
    parts.measure("table of ranks", [&] { gather_rows(ranks, node); });
    parts.measure("flight records", [&] { run.start_flight(); });
    const FlatLayout layout(tensors, 0);
    const TreePlan plan(ranks.size(), ranks.size(), Summation::tree);
    std::unique_ptr<Exchange> exchange;
    parts.measure("exchange", [&] {
        exchange = recorded(make_exchange(ranks.duplicate(), layout, plan), layout, run.recorder());
    });
    Reducer reducer(layout, plan, ranks.rank(), *exchange);
    parts.measure("steps", [&] { run.train(*exchange, reducer); });
    const Json measured = parts.json();
    if (ranks.is_root()) std::cout << measured << "\n";
}

constexpr int ranks_of_node = 8;

/// `mine` as rank `rank` of a job of nodes of eight would send it.
DoctorFacts facts_of(DoctorFacts mine, int rank, int ranks) {
    mine.rank = rank;
    mine.size = ranks;
    mine.local_rank = rank % ranks_of_node;
    mine.local_size = ranks_of_node;
    mine.node.host = fmt::format("n{}", rank / ranks_of_node);
    mine.node.boot_id = fmt::format("boot-{}", rank / ranks_of_node);
    return mine;
}

constexpr int most_slow_links = 16;

/// As after the doctor's probes, all links of the first node being slow.
DoctorFacts probed(DoctorFacts facts) {
    SelfTestFacts test{.wrong_sums = std::vector<WrongSum>(8, {"lockstep", 1023, 0}),
                       .state_hash = std::string(32, 'a'),
                       .step_s = std::vector<double>(24, 1.0 / 700)};
    test.median_link = 9e9 / 7;
    const auto tell = [&](int node) { test.slow_pairs.push_back({node * ranks_of_node, 1e9 / 3}); };
    if (facts.rank == 0)
        for (int node = 1; node <= most_slow_links; ++node) tell(node);
    else if (facts.local_rank == 0)
        tell(0);
    facts.self_test = test;
    return facts;
}

/// What all ranks sent, as texts.
template <class Make>
std::vector<std::string> sent(int ranks, Make&& make) {
    std::vector<std::string> texts;
    for (int rank = 0; rank < ranks; ++rank) texts.push_back(serialize(make(rank)));
    return texts;
}

void judge(const std::vector<std::string>& examined, Pace slowest) {
    std::vector<DoctorFacts> all;
    for (const std::string& text : examined) all.push_back(deserialize<DoctorFacts>(text, "facts"));
    const DoctorSelection selection{.slowest = slowest};
    const auto findings = run_checks(all, selection);
    network_text(all);
    findings_text(findings, selected_checks(selection).size());
}

/// What the root does with it.
void work_as_root(int ranks) {
    const Communicator alone = Communicator::world();
    Parts parts(alone);
    const RankFacts facts;
    const DoctorFacts mine = examine_rank(alone, facts, {});
    const auto examined = sent(ranks, [&](int rank) { return facts_of(mine, rank, ranks); });
    const auto tested = sent(ranks, [&](int rank) { return probed(facts_of(mine, rank, ranks)); });
    const auto witnesses = sent(ranks, [&](int rank) {
        const int node = rank / ranks_of_node;
        return NodeWitness{rank,
                           fmt::format("n{}", node),
                           node * ranks_of_node,
                           rank % ranks_of_node,
                           rank % ranks_of_node};
    });
    const auto seats = sent(ranks, [&](int rank) {
        return RankSeat{.rank = rank,
                        .host = fmt::format("n{}", rank / ranks_of_node),
                        .local_rank = rank % ranks_of_node,
                        .cpus = {rank % ranks_of_node}};
    });
    parts.measure("witnesses", [&] {
        std::vector<NodeWitness> heard;
        for (const std::string& text : witnesses)
            heard.push_back(deserialize<NodeWitness>(text, "witness"));
        check_witnesses(heard);
    });
    parts.measure("table of places", [&] {
        Placement places;
        for (const std::string& text : seats)
            places.seats.push_back(deserialize<RankSeat>(text, "seat"));
        check_no_sharing(places.seats, {});
        placement_table(places);
    });
    parts.measure("preflight", [&] { judge(examined, Pace::fast); });
    parts.measure("doctor", [&] { judge(tested, Pace::slow); });
    Json measured = parts.json();
    measured["ranks"] = ranks;
    measured["facts_kib"] = static_cast<double>(examined.front().size()) / 1024;
    std::cout << measured << "\n";
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() != 2 || (words[0] != "run" && words[0] != "root")) {
        std::cerr << "usage: mpirun -np P bench_at_scale run FOLDER, or bench_at_scale root P\n";
        return 64;
    }
    const MpiSession session;
    if (words[0] == "root")
        work_as_root(std::stoi(words[1]));
    else
        start_and_train(Communicator::world(), words[1]);
}
