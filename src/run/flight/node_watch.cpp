// SPDX-License-Identifier: Apache-2.0
// A rank that waits for a rank of another node cannot see its process, and MPI does not report its
// loss. A peer whose machine stopped, whose cable was cut or whose parent daemon died just does not
// answer, and the wait lasts until the time-out. So nodes write heartbeats, apart from the data
// path:
//
//     node 0   beat 17, rank 0 running, rank 1 running  --> node-00000.beat --+
//     node 1   beat 21, rank 2 running, rank 3 gone     --> node-00001.beat --+-- read by the
//     node 2   beat 20, rank 4 running, rank 5 running  --> node-00002.beat --+   nodes before it
//
// Heartbeats are files in the run's folder, which all nodes share anyway, and not messages: a
// listening socket could be attacked, and MPI may be what hangs, with its locks held by the waiting
// thread. The rings' own heartbeats do not suffice: they are stores to mapped memory, which a file
// server sees at the kernel's choice. A heartbeat file is written and closed: close-to-open is what
// every file server for clusters promises. There is one file per node, not per rank, with four
// readers: a thousand nodes make two thousand small requests a second for any number of ranks.
//
// The node's lowest rank is on duty: it checks its neighbours' processes, writes and reads. The
// next two only read their own node's file. If that stops changing, the first of them takes over,
// so that a stopped or dead rank is distinguished from a silent node.
//
// A rank that its own node reports as gone, in two heartbeats, is lost. A node that writes no more
// heartbeats is lost when this node waits for others. Silence is counted, not computed from clocks:
// seconds of rounds in which this rank ran, wrote its own heartbeat and read in time.
//
// What must never happen:
// - Two nodes' clocks are compared: `count` only has to change.
// - A file server that hangs, or a process that was stopped itself, is taken for the others'
//   silence: such a round counts for nothing, and a long one for one and a half at most.
// - Silence of a node that is at work: where this rank computes, or collectives end, it is not
//   judged (may_wait).
// - A file server under a flood of checkpoints makes a node silent: where this node's own rounds
//   took long of late, silence may last four times as long (patience_s).
// - The end of a job is taken for a loss: who leaves says so in a last beat; who was told to end or
//   has left an end mark is not gone.
// - A beat comes back to a folder that was removed: only the first one creates its file.
// - A network that drops packets for some seconds, or is slow, ends a job: a packet that arrives is
//   acknowledged, however busy the other host is.
//
// Files do not show a firewall between two nodes, which stops neither. The kernel does: TCP resends
// unacknowledged data, and records since when (signs_of_life.hpp).
//
// Tested: run/flight/node_watch_test.cpp (processes as nodes), cluster/lost_node_test (nodes
// stopped, killed and cut off under a real launcher).

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/verdict.hpp"
#include "lockstep/run/watchdog.hpp"

#include "flight/signs_of_life.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t watched_nodes = 4;
constexpr std::size_t deputies = 2;
constexpr int beats_until_gone = 2;     // a launcher that is ending all may be quicker than a beat
constexpr double slow_round = 1.0 / 6;  // of beat_s: milliseconds are usual
constexpr double slow_patience = 4;
constexpr std::size_t recent_rounds = 10;

RankState state_of(const RankPlace& place, const fs::path& folder) {
    const Life life = life_of(place.process);
    const LastWords words = read_last_words(ring_path(folder, place.rank));
    if (words.has_end_mark || (life == Life::gone && words.signal != 0)) return RankState::ended;
    if (life == Life::gone) return RankState::gone;
    return life == Life::stopped ? RankState::stopped : RankState::running;
}

/// Returns true if the rank may be waiting for others: not while it computes, nor in a short wait.
bool may_wait(const FlightRecorder& recorder, double least_s) {
    const auto pending = recorder.oldest_pending();
    if (pending && pending->started_s > 0) return now_s() - pending->started_s > least_s;
    const Phase phase = recorder.phase().phase;
    return phase != Phase::data && !is_computing(phase);
}

}  // namespace

class NodeWatch::Impl {
  public:
    Impl(NodeMap map, fs::path folder, NodeWatchSettings settings)
        : map_(std::move(map)),
          settings_(settings),
          first_folder_(folder),
          folder_(std::move(folder)) {
        const auto& mine = own().ranks;
        place_ = static_cast<std::size_t>(std::ranges::find(mine, map_.rank, &RankPlace::rank) -
                                          mine.begin());
        for (std::size_t step = 1; step < map_.nodes.size() && step <= watched_nodes; ++step)
            watched_.push_back({.node = (map_.own + step) % map_.nodes.size()});
        if (!settings_.unanswered) settings_.unanswered = unanswered_addresses;
        if (place_ > deputies) return;
        if (place_ == 0) write_beat(Create::yes);
        thread_ = std::thread([this] { watch(); });
    }

    ~Impl() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    Impl& operator=(Impl&&) = delete;

    void stand_by(const FlightRecorder& recorder) {
        const std::lock_guard files(files_);
        const fs::path before = own_file();
        {
            const std::lock_guard lock(mutex_);
            folder_ = recorder.folder();
            recorder_ = &recorder;
        }
        for (Watched& watched : watched_) watched.silent_s = 0;
        if (place_ != 0) return;
        write_beat(Create::yes);
        std::error_code ignored;
        if (before != own_file()) fs::remove(before, ignored);
    }

    std::vector<RankTrace> lost() const {
        const std::lock_guard lock(mutex_);
        return lost_;
    }

    fs::path folder() const {
        const std::lock_guard lock(mutex_);
        return folder_;
    }

    bool claim(const Verdict& verdict) const {
        const fs::path present = folder();
        return (present == first_folder_ || claim_verdict(first_folder_, verdict)) &&
               claim_verdict(present, verdict);
    }

  private:
    struct Watched {
        std::size_t node = 0;
        std::optional<NodeBeat> last{};
        double silent_s = 0, cut_off_s = 0;
        std::map<int, int> gone{};  ///< beats in a row that call the rank gone

        void hear(const NodeBeat& beat) {
            std::map<int, int> before = std::exchange(gone, {});
            for (const RankBeat& rank : beat.ranks)
                if (rank.state == RankState::gone) gone[rank.rank] = before[rank.rank] + 1;
            last = beat;
            silent_s = 0;
            if (!beat.has_lost_link) cut_off_s = 0;
        }
    };

    const NodeRanks& own() const { return map_.nodes[map_.own]; }
    fs::path own_file() const { return node_beat_path(folder(), static_cast<int>(map_.own)); }

    void watch() {
        std::unique_lock lock(mutex_);
        while (!is_over_) {
            lock.unlock();
            work_round();
            lock.lock();
            if (recorder_ == nullptr && !lost_.empty()) give_up();
            changed_.wait_for(
                lock, std::chrono::duration<double>(settings_.beat_s), [&] { return is_over_; });
        }
        lock.unlock();
        if (!is_on_duty_ || recorder_ == nullptr) return;
        is_leaving_ = true;
        write_beat(Create::no);
    }

    void work_round() {
        const std::lock_guard files(files_);
        const double begin_s = now_s(), passed_s = begin_s - std::exchange(last_round_s_, begin_s);
        const double most_s = 1.5 * settings_.beat_s;
        std::vector<RankTrace> lost;
        if (takes_duty(std::min(passed_s, most_s))) {
            find_unanswering(passed_s, lost);
            const bool is_heard = write_beat(Create::no);
            std::vector<std::optional<NodeBeat>> beats;
            for (const Watched& watched : watched_)
                beats.push_back(
                    read_node_beat(node_beat_path(folder(), static_cast<int>(watched.node))));
            const double took_s = now_s() - begin_s;
            const bool counts = is_heard && took_s < settings_.beat_s;
            rounds_s_[rounds_++ % recent_rounds] = took_s;
            for (std::size_t i = 0; i < beats.size(); ++i)
                judge(watched_[i], beats[i], counts ? std::min(passed_s, most_s) : 0, lost);
        }
        const std::lock_guard lock(mutex_);
        lost_ = std::move(lost);
    }

    /// The first rank always; a deputy where nobody else has beaten for longer than its turn.
    bool takes_duty(double passed_s) {
        const auto found = read_node_beat(own_file());
        const std::uint64_t count = found ? found->count : 0;
        const bool is_others = count != count_;
        count_ = std::max(count, count_);
        unbeaten_s_ = is_others ? 0 : unbeaten_s_ + passed_s;
        if (place_ > 0 && is_others) is_on_duty_ = false;
        if (place_ == 0 || unbeaten_s_ > settings_.beat_s * (1.4 + static_cast<double>(place_)))
            is_on_duty_ = true;
        return is_on_duty_;
    }

    bool write_beat(Create create) {
        NodeBeat beat{.count = ++count_,
                      .unix_s = unix_time_s(),
                      .is_leaving = is_leaving_,
                      .has_lost_link = links_.lost_one(now_s())};
        for (const RankPlace& place : own().ranks)
            beat.ranks.push_back({place.rank, place.process.pid, state_of(place, folder())});
        return write_node_beat(own_file(), beat, create);
    }

    void judge(Watched& watched,
               const std::optional<NodeBeat>& beat,
               double counted_s,
               std::vector<RankTrace>& lost) {
        if (beat && (!watched.last || beat->count != watched.last->count))
            watched.hear(*beat);
        else
            watched.silent_s += counted_s;
        if (watched.last && watched.last->has_lost_link) watched.cut_off_s += counted_s;
        const bool is_silent = is_too_long(watched, watched.silent_s, settings_.silent_s / 4);
        const bool is_cut_off = is_too_long(watched, watched.cut_off_s, 0.75 * settings_.silent_s);
        for (const RankPlace& place : map_.nodes[watched.node].ranks) {
            const auto gone = watched.gone.find(place.rank);
            const bool is_gone = gone != watched.gone.end() && gone->second >= beats_until_gone;
            const bool is_lost = (is_silent || is_cut_off) && !has_ended(watched, place.rank);
            if (!is_gone && !is_lost) continue;
            RankTrace trace = trace_of(place, map_.nodes[watched.node].host);
            trace.life = is_silent ? Life::silent : Life::cut_off;
            if (is_gone) trace.life = Life::gone;
            trace.heartbeat_s -= watched.silent_s;
            lost.push_back(std::move(trace));
        }
    }

    /// Examines all nodes. A connection that was idle for long counts as unanswered only since it
    /// was used: since the last round that saw nothing of it.
    void find_unanswering(double passed_s, std::vector<RankTrace>& lost) {
        if (settings_.silent_s <= 0) return;
        std::map<std::string, double> now = settings_.unanswered();
        for (auto& [address, seconds] : now) {
            const auto before = unanswered_.find(address);
            seconds =
                std::min(seconds, passed_s + (before == unanswered_.end() ? 0 : before->second));
        }
        unanswered_ = std::move(now);
        for (std::size_t node = 0; node < map_.nodes.size(); ++node) {
            const double seconds = node == map_.own ? 0 : unanswered_s(map_.nodes[node]);
            const double least_s = 0.75 * std::min(settings_.silent_s, settings_.unanswered_s);
            if (seconds < settings_.unanswered_s) continue;
            if (recorder_ != nullptr && !may_wait(*recorder_, least_s)) continue;
            for (const RankPlace& place : map_.nodes[node].ranks) {
                RankTrace trace = trace_of(place, map_.nodes[node].host);
                trace.life = Life::unanswering;
                trace.unanswered_s = seconds;
                trace.asked_by = own().host;
                lost.push_back(std::move(trace));
            }
        }
    }

    /// At the address that answers last; not at those that this node has, too, as a bridge for
    /// containers.
    double unanswered_s(const NodeRanks& node) const {
        double longest_s = 0;
        for (const auto& [address, seconds] : unanswered_)
            if (std::ranges::count(node.addresses, address) > 0 &&
                std::ranges::count(own().addresses, address) == 0)
                longest_s = std::max(longest_s, seconds);
        return longest_s;
    }

    static bool has_ended(const Watched& watched, int rank) {
        if (!watched.last) return false;
        const auto found = std::ranges::find(watched.last->ranks, rank, &RankBeat::rank);
        return found != watched.last->ranks.end() && found->state == RankState::ended;
    }

    /// `least_s`: how long this rank must have waited itself.
    bool is_too_long(const Watched& watched, double lost_s, double least_s) const {
        const bool is_leaving = watched.last && watched.last->is_leaving;
        if (settings_.silent_s <= 0 || is_leaving || lost_s < patience_s()) return false;
        return recorder_ == nullptr || may_wait(*recorder_, least_s);
    }

    double patience_s() const {
        const bool is_slow = std::ranges::max(rounds_s_) > slow_round * settings_.beat_s;
        return settings_.silent_s * (is_slow ? slow_patience : 1);
    }

    RankTrace trace_of(const RankPlace& place, const std::string& host) const {
        std::size_t ranks = 0;
        for (const NodeRanks& node : map_.nodes) ranks += node.ranks.size();
        return {.rank = place.rank,
                .ranks = static_cast<int>(ranks),
                .host = host,
                .pid = place.process.pid,
                .phase_since_s = unix_time_s() - (now_s() - began_s_),
                .heartbeat_s = unix_time_s()};
    }

    /// Before there are flight records: what is known of everybody, and a verdict on it.
    [[noreturn]] void give_up() {
        std::vector<RankTrace> traces;
        for (const NodeRanks& node : map_.nodes)
            for (const RankPlace& place : node.ranks) traces.push_back(trace_of(place, node.host));
        std::ranges::sort(traces, {}, &RankTrace::rank);
        add_lost_ranks(lost_, traces);
        const Verdict verdict = diagnose(traces, unix_time_s(), 0);
        if (claim_verdict(folder_, verdict)) {
            const std::string text = error_of(verdict).text() + "\n";
            [[maybe_unused]] const auto wrote =
                ::write(error_descriptor(), text.data(), text.size());
        }
        end_process(static_cast<int>(ExitCode::peer_lost));
    }

    const NodeMap map_;
    NodeWatchSettings settings_;
    const fs::path first_folder_;
    const double began_s_ = now_s();
    std::size_t place_ = 0;  // among the ranks of its node

    std::mutex files_;  // a round, and what else belongs to the thread while it runs
    std::vector<Watched> watched_;
    std::uint64_t count_ = 0;
    std::array<double, recent_rounds> rounds_s_{};  // durations of rounds
    std::size_t rounds_ = 0;
    LinkWatch links_;
    std::map<std::string, double> unanswered_;  // by address
    double last_round_s_ = now_s(), unbeaten_s_ = 0;
    bool is_on_duty_ = false, is_leaving_ = false;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    fs::path folder_;
    const FlightRecorder* recorder_ = nullptr;  // changes only while no round is on
    std::vector<RankTrace> lost_;
    bool is_over_ = false;

    std::thread thread_;  // last: it uses all of the above
};

NodeWatch::NodeWatch(NodeMap map, fs::path folder, NodeWatchSettings settings)
    : impl_(std::make_unique<Impl>(std::move(map), std::move(folder), settings)) {}

NodeWatch::~NodeWatch() = default;

void NodeWatch::stand_by(const FlightRecorder& recorder) {
    impl_->stand_by(recorder);
}

std::vector<RankTrace> NodeWatch::lost() const {
    return impl_->lost();
}

bool NodeWatch::claim(const Verdict& verdict) const {
    return impl_->claim(verdict);
}

}  // namespace lockstep
