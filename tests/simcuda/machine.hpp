// SPDX-License-Identifier: Apache-2.0
// CUDA without a GPU: memory of the GPUs is the host's at other addresses, a stream is a thread, a
// kernel is its host source. Nothing of the program knows: one library stands for all that it loads
// by name.
//
//     the program                               libsimcuda.so
//     LibTorch      dispatch key CUDA ------->  torch_operators: LibTorch's own operator, on a copy
//                   hooks, guard, allocator ->  torch_device
//     lockstep      CudaApi, entry points --->  lockstep_cuda -------------+
//                   ncclXxx ----------------->  nccl_*, over MPI ----------+--> streams: threads
//
// LibTorch's operators run on the thread that calls them, after all work of its current stream: a
// host that waits where a GPU would queue. Their results, and all else, are work of streams that
// touches memory when its turn comes, so that a missing event is seen as wrong numbers.
//
// What it cannot show: kernels, speed, and a host that runs ahead of LibTorch's operators.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

namespace simcuda {

/// What is in memory that nobody wrote, and in freed memory.
inline constexpr int poison = 0x7f;

/// Says what a program did that CUDA does not survive either, and ends it.
[[noreturn]] void die(const char* what);

/// Blocks of addresses at which nothing can be read or written: who takes a GPU's pointer for the
/// host's ends with a segmentation fault, as with CUDA. What they hold lies elsewhere:
///
///     [ addresses, PROT_NONE ........ ][ bytes ........................ ]
///        ^ the program's pointer          ^ behind(pointer), the simulation's
///
/// Not for several threads at once, but for behind().
class Arena {
  public:
    Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Null where no addresses are left.
    void* take(std::size_t bytes);
    void give_back(void* block, std::size_t bytes);

    bool holds(const void* address) const;

    /// Where the host finds what `address` holds: elsewhere if it is a GPU's.
    template <class T>
    T* behind(T* address) const {
        if (!holds(address)) return address;
        const auto* const at = reinterpret_cast<const std::byte*>(address) + size;
        return reinterpret_cast<T*>(const_cast<std::byte*>(at));
    }

  private:
    static constexpr std::size_t size = std::size_t{1} << 36;

    std::byte* begin_ = nullptr;
    std::size_t used_ = 0;
    std::array<std::vector<void*>, 64> free_;  ///< by the exponent of their size
};

class Stream;

/// Any thread.
class Memory {
  public:
    /// Null where the GPU has not so much left. `owner`: whose work uses it.
    void* allocate(int device, std::size_t bytes, Stream* owner);

    /// Null where nobody was named, `data` is not what allocate() gave, or it was asked before: a
    /// block that is freed twice is noticed though its release is still in a stream.
    Stream* take_owner(void* data);

    /// Aborts unless `data` is what allocate() gave.
    void release(void* data);

    /// Of the allocation that `data` lies in; aborts where [data, data + bytes) goes beyond it.
    std::optional<int> device_of(const void* data, std::size_t bytes = 0);

    /// What a GPU's memory holds, for the host; other addresses as they are.
    template <class T>
    T* behind(T* address) const {
        return arena_.behind(address);
    }

    /// The same for a kernel: aborts where it is memory of the host that no GPU reaches.
    template <class T>
    T* in_kernel(T* address) {
        if (address != nullptr && !arena_.holds(address) && !is_locked(address))
            die("a kernel is given memory of the host that is not page-locked");
        return behind(address);
    }

    std::size_t used(int device);

    bool lock(void* data, std::size_t bytes);
    bool unlock(void* data);
    bool is_locked(const void* data);

  private:
    struct Block {
        std::size_t bytes = 0;
        int device = 0;
        Stream* owner = nullptr;
    };

    Arena arena_;
    std::mutex mutex_;
    std::map<const std::byte*, Block> blocks_;
    std::map<const std::byte*, std::size_t> locked_;
    std::map<int, std::size_t> used_;  ///< by device
};

class Recording;

/// Does its work in order, one piece after the other, on a thread of its own and as late as the
/// settings ask. Never destroyed: another thread may always be waiting for it.
class Stream {
  public:
    using Task = std::function<void()>;

    explicit Stream(int device);
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    int device() const { return device_; }
    void enqueue(Task task);
    bool is_idle();

    /// Until all is done that was enqueued before.
    void drain();

    /// Its thread ends when its work is done.
    void end();

    std::atomic<Recording*> recording = nullptr;  ///< of what is asked of it; null: it is done

  private:
    void run();

    const int device_;
    std::uint64_t number_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    std::uint64_t enqueued_ = 0, done_ = 0;
    bool ends_ = false;
};

/// As cudaEvent_t: where its last record was, if it was recorded at all.
class Event {
  public:
    void record(Stream& stream);
    bool has_passed() const;
    void synchronize() const {
        if (passed_.valid()) passed_.wait();
    }
    /// Both have passed.
    double milliseconds_to(const Event& later) const;
    /// `stream` waits for what is recorded now; a later record is none of its business.
    void hold(Stream& stream) const;

    bool is_of_recording = false;  ///< the stream recorded a graph

  private:
    using Time = std::chrono::steady_clock::time_point;

    std::shared_future<Time> passed_;
};

/// The one of this process. Lives to its end.
class Machine {
  public:
    Memory memory;

    /// CUDA's current device, of the calling thread.
    static int device();
    static void set_device(int device);

    bool has_context(int device);
    void make_context(int device);

    /// The legacy default stream of a device, nullptr to CUDA.
    Stream& default_stream(int device);
    /// A new one; it is drained with its device until it is given back.
    Stream& make_stream(int device);
    void end_stream(Stream& stream);

    /// Until all streams of the device have done what they had.
    void synchronize(int device);

    /// Like memory.allocate(), after all frees that are still in streams where need be.
    void* allocate(int device, std::size_t bytes, Stream* owner = nullptr);

  private:
    std::mutex mutex_;
    std::set<int> contexts_;  ///< devices
    std::map<int, Stream*> defaults_;
    std::vector<Stream*> streams_;
};

Machine& machine();

/// Of a cudaStream_t; nullptr: the default stream of the calling thread's device.
Stream& stream_of(void* handle);

}  // namespace simcuda
