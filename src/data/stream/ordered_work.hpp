// SPDX-License-Identifier: Apache-2.0
// Work that many threads make and one thread uses in order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep {

/// Returns the number of processors that this process may use (its affinity, not the machine's).
int usable_cores();

/// From now on this thread, when it is woken, waits until a processor is free or the scheduler's
/// next tick. It does not take the processor of a running thread, which most often is the caller of
/// next(), who woke it by returning a batch. Its share of the processors stays the same. Only for
/// threads with the usual policy; never fails.
void work_in_background();

/// Returns the number of threads for `asked`: 0 is one for each core that this process may use.
int worker_count(int asked);

/// Assigns pieces to makers: pieces 0, 1, ... of `count` pass through `slots` places. Any thread.
class OrderedWork {
  public:
    OrderedWork(std::uint64_t count, std::size_t slots) : count_(count), places_(slots) {}

    /// Returns the next piece to make, once its place is free; nothing at the end.
    std::optional<std::uint64_t> claim();
    void finish(std::uint64_t piece, std::exception_ptr failure);

    /// Waits for `piece`; throws the exception of making it.
    void await(std::uint64_t piece);
    void free_place_of(std::uint64_t piece);

    /// Ends claims.
    void end();

  private:
    struct Place {
        bool is_made = false;
        std::exception_ptr failure;
    };
    std::mutex mutex_;
    std::condition_variable freed_, made_;
    std::uint64_t count_, next_ = 0, used_ = 0;
    bool is_ended_ = false;
    std::vector<Place> places_;
};

/// Ends claims with its scope.
struct EndOfClaims {
    OrderedWork& work;
    ~EndOfClaims() { work.end(); }
    EndOfClaims& operator=(EndOfClaims&&) = delete;
};

/// Calls maker(piece, slot) for each piece below `count`, on a thread for each of `makers`, and
/// use(piece, slot) on this thread, in order. Slots are reused. With one maker everything happens
/// on this thread. Throws the first failure in the order of pieces, after all threads have ended.
template <class Slot, class Maker, class Use>
void work_in_order(std::uint64_t count,
                   std::vector<Maker>& makers,
                   Use&& use,
                   std::size_t slots_of_a_maker = 2) {
    std::vector<Slot> slots(slots_of_a_maker * makers.size());
    if (makers.size() == 1) {
        for (std::uint64_t piece = 0; piece < count; ++piece) {
            makers[0](piece, slots[0]);
            use(piece, slots[0]);
        }
        return;
    }
    OrderedWork work(count, slots.size());
    std::vector<std::jthread> threads;
    const EndOfClaims end{work};
    for (Maker& maker : makers)
        threads.emplace_back([&work, &maker, &slots] {
            while (const auto piece = work.claim()) {
                std::exception_ptr failure;
                try {
                    maker(*piece, slots[*piece % slots.size()]);
                } catch (...) {
                    failure = std::current_exception();
                }
                work.finish(*piece, failure);
            }
        });
    for (std::uint64_t piece = 0; piece < count; ++piece) {
        work.await(piece);
        use(piece, slots[piece % slots.size()]);
        work.free_place_of(piece);
    }
}

}  // namespace lockstep
