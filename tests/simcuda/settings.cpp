// SPDX-License-Identifier: Apache-2.0
#include "simcuda/settings.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

namespace simcuda {
namespace {

constexpr int launch_failure = 719;

std::string text_of(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

int rank_of_process() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
        if (const std::string text = text_of(name); !text.empty()) return std::stoi(text);
    return 0;
}

/// "VALUE" for all ranks, or "RANK:VALUE" for one.
std::optional<std::string> value_for(int rank, const char* name) {
    const std::string text = text_of(name);
    if (text.empty()) return {};
    const auto colon = text.find(':');
    if (colon == text.npos) return text;
    if (std::stoi(text.substr(0, colon)) != rank) return {};
    return text.substr(colon + 1);
}

Settings from_environment() {
    Settings s;
    s.rank = rank_of_process();
    const auto read = [&](auto& setting, const char* name) {
        using Number = std::remove_reference_t<decltype(setting)>;
        if (const auto value = value_for(s.rank, name))
            setting = static_cast<Number>(std::stoull(*value));
    };
    read(s.seed, "SIMCUDA_SEED");
    read(s.delay_us, "SIMCUDA_DELAY_US");
    read(s.memory, "SIMCUDA_MEMORY");
    read(s.nccl_version, "SIMCUDA_NCCL_VERSION");
    read(s.capability, "SIMCUDA_CAPABILITY");
    read(s.kills_in, "SIMCUDA_KILL");
    read(s.hangs_in, "SIMCUDA_HANG");
    read(s.stalls_in, "SIMCUDA_STALL");
    read(s.lost_after, "SIMCUDA_LOST");
    read(s.refuses, "SIMCUDA_REFUSE");
    read(s.no_workspace, "SIMCUDA_NO_WORKSPACE");
    read(s.wide_norm, "SIMCUDA_WIDE_NORM");
    read(s.groups, "SIMCUDA_GROUPS");
    s.waits = text_of("SIMCUDA_WAITS");
    if (const std::string text = text_of("SIMCUDA_DROP_WAIT"); !text.empty()) {
        const auto slash = text.find('/');
        s.drops_wait = std::stoull(text);
        if (slash != text.npos) s.drops_each = std::stoull(text.substr(slash + 1));
    }
    return s;
}

struct State {
    std::mutex mutex;
    Settings settings = from_environment();
    std::atomic<std::uint64_t> calls = 0, sums = 0, waits = 0, operators = 0, convolutions = 0;
    std::atomic<std::uint64_t> waits_of_host = 0, launches = 0;
};

State& state() {
    static State& all = *new State;  // threads outlive what a process destroys at its end
    return all;
}

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

}  // namespace

Settings settings() {
    const std::lock_guard lock(state().mutex);
    return state().settings;
}

void read_settings() {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.settings = from_environment();
    all.calls = all.sums = all.waits = all.operators = all.convolutions = 0;
}

void be_late(std::uint64_t stream, std::uint64_t number) {
    const Settings now = settings();
    if (now.delay_us == 0) return;
    const auto rank = static_cast<std::uint64_t>(now.rank);
    const std::uint64_t own = mixed(mixed(now.seed ^ rank << 32) + stream);
    // Half of all streams are prompt, with each seed others: they get far ahead of those that wait.
    if (own % 2 == 0) return;
    const std::uint64_t drawn = mixed(own + number);
    // Most work is quick and some is late: so a stream gets ahead of the others by several pieces.
    if (drawn % 4 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % (now.delay_us + 1)));
}

int fault_of_call() {
    return ++state().calls >= settings().lost_after ? launch_failure : 0;
}

int fault_of_poll() {
    return state().calls >= settings().lost_after ? launch_failure : 0;
}

// Writes each time: a rank of a training ends without destructors.
void note_wait_of_host() {
    const std::lock_guard lock(state().mutex);
    const std::uint64_t count = ++state().waits_of_host;
    const Settings& now = state().settings;
    if (!now.waits.empty())
        std::ofstream(now.waits + "." + std::to_string(now.rank), std::ios::app)
            << count << ' ' << state().launches << '\n';
}

void note_launch() {
    ++state().launches;
}

OneLaunch::OneLaunch() : before_(state().launches) {}

OneLaunch::~OneLaunch() {
    state().launches = before_ + 1;
}

std::uint64_t waits_of_host() {
    return state().waits_of_host;
}

bool is_stalled_sum() {
    return ++state().sums == settings().stalls_in;
}

bool is_dropped_wait() {
    const std::uint64_t number = ++state().waits;
    const Settings now = settings();
    if (number < now.drops_wait) return false;
    return number == now.drops_wait ||
           (now.drops_each != never && (number - now.drops_wait) % now.drops_each == 0);
}

bool is_refused_operator() {
    return ++state().operators >= settings().refuses;
}

std::uint64_t other_kernels() {
    const std::uint64_t number = ++state().convolutions, first = settings().no_workspace;
    return number < first ? 0 : number - first + 1;
}

}  // namespace simcuda
