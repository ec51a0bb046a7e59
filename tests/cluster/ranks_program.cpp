// SPDX-License-Identifier: Apache-2.0
// A small MPI program for the cluster's tests: rank 0 prints "4 ranks on node1 node1 node2 node2",
// the ranks' sum having crossed the network. With a file's name, each rank writes the signals that
// it gets to FILE.RANK, one number a line, until SIGTERM or two minutes are over.
#include "lockstep/comm/communicator.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <thread>

#include <unistd.h>

namespace {

std::array<std::atomic<int>, 65> seen{};

void note_signal(int signal) {
    ++seen[static_cast<std::size_t>(signal)];
}

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

void print_hosts(const lockstep::Communicator& ranks) {
    std::array<std::int64_t, 1> sum{ranks.rank() + 1};
    ranks.all_reduce_sum(sum);
    const auto hosts = ranks.all_gather(host_name());
    if (!ranks.is_root()) return;
    const bool right = sum[0] == ranks.size() * (ranks.size() + 1) / 2;
    std::cout << ranks.size() << (right ? " ranks on" : " ranks sum wrongly on");
    for (const std::string& host : hosts) std::cout << ' ' << host;
    std::cout << std::endl;
}

void record_signals(const std::string& file) {
    using namespace std::chrono_literals;
    std::ofstream out(file);
    const auto end = std::chrono::steady_clock::now() + 2min;
    std::array<int, 65> written{};
    out << "ready" << std::endl;
    while (seen[SIGTERM] == 0 && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(20ms);
        for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM})
            for (int& told = written[static_cast<std::size_t>(signal)];
                 told < seen[static_cast<std::size_t>(signal)];
                 ++told)
                out << signal << std::endl;
    }
}

}  // namespace

int main(int argc, char** argv) {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) std::signal(signal, note_signal);
    const lockstep::MpiSession session;
    const auto ranks = lockstep::Communicator::world();
    print_hosts(ranks);
    if (argc > 1) record_signals(std::string(argv[1]) + "." + std::to_string(ranks.rank()));
    ranks.barrier();
}
