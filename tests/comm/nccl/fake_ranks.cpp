// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/fake_ranks.hpp"

#include "lockstep/core/log.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace lockstep::test {

std::vector<std::optional<std::string>> ThreadBootstrap::gather_within(const std::string& bytes,
                                                                       double deadline_s) {
    std::unique_lock lock(board_->mutex);
    auto& mine = board_->gathers[static_cast<std::size_t>(rank_)];
    mine.push_back(bytes);
    const std::size_t number = mine.size();
    board_->changed.notify_all();
    const auto all_came = [&] {
        return std::ranges::all_of(board_->gathers,
                                   [&](const auto& texts) { return texts.size() >= number; });
    };
    board_->changed.wait_for(lock, std::chrono::duration<double>(deadline_s), all_came);
    std::vector<std::optional<std::string>> all;
    for (const auto& texts : board_->gathers)
        all.push_back(texts.size() >= number ? std::optional(texts[number - 1]) : std::nullopt);
    return all;
}

void ThreadBootstrap::announce(const std::string& text) {
    const std::lock_guard lock(board_->mutex);
    for (int peer = 0; peer < board_->size; ++peer)
        if (peer != rank_) board_->notices[static_cast<std::size_t>(peer)].push_back({rank_, text});
}

std::optional<Notice> ThreadBootstrap::notice() {
    const std::lock_guard lock(board_->mutex);
    auto& mine = board_->notices[static_cast<std::size_t>(rank_)];
    if (mine.empty()) return {};
    Notice first = mine.front();
    mine.pop_front();
    return first;
}

NcclCommunicator FakeRank::communicator(const std::string& name) const {
    NcclOptions named = options;
    named.name = name;
    return {runtime, bootstrap, named};
}

FakeRanksTest::FakeRanksTest() {
    open_log({.terminal_level = Level::error});
    options.environment = Environment(std::map<std::string, std::string>{});
    options.init_deadline_s = 20;
    options.collective_deadline_s = 20;
    options.abort_limit_s = 5;
}

FakeRanksTest::~FakeRanksTest() {
    nccl.release_aborts();
}

Errors FakeRanksTest::run(int ranks, const std::function<void(const FakeRank&)>& body) {
    const auto board = std::make_shared<Board>(ranks);
    Errors errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        CudaDeviceFacts gpu{
            fmt::format("GPU-{}", rank), fmt::format("0000:0{}:00.0", rank), "fake", 1};
        NcclOptions mine = options;
        vary(rank, gpu, mine);
        threads.emplace_back([&, rank, gpu, mine] {
            ThreadBootstrap bootstrap(board, rank);
            try {
                body({rank,
                      std::make_shared<GpuRuntime>(std::make_unique<NcclApi>(nccl.api()),
                                                   std::make_unique<CudaApi>(cuda.api(gpu)),
                                                   "a fake NCCL"),
                      bootstrap,
                      mine,
                      cuda});
            } catch (const Error& error) {
                errors[static_cast<std::size_t>(rank)] = error;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& violation : cuda.violations()) ADD_FAILURE() << violation;
    return errors;
}

}  // namespace lockstep::test
