// SPDX-License-Identifier: Apache-2.0
#include "selftest_worker.hpp"

#include "lockstep/comm/nccl_collectives.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error_kind.hpp"

#include "caller.hpp"

#include <csignal>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double killed_limit_s = 5;

/// Small whole numbers: every order of adding them gives the same.
double value_of(int rank, std::size_t i) {
    return static_cast<double>((rank + 1) * static_cast<int>(i % 5 + 1));
}

double sum_of(int ranks, std::size_t i) {
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, i);
    return sum;
}

template <class T>
void check_values(const std::vector<T>& got,
                  ElementRange range,
                  int ranks,
                  double factor,
                  const std::string& what) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
        const T expected = static_cast<T>(sum_of(ranks, i) * factor);
        check(got[i] == expected, [&] {
            return Error(
                "E679",
                fmt::format(
                    "{}: element {} of {} is {}, not {}", what, i, got.size(), got[i], expected),
                "NCCL or Lockstep sums wrongly on this machine",
                "please report it with the output of NCCL_DEBUG=INFO");
        });
    }
}

/// One buffer through the collectives, copied in and out on the caller's stream without waiting
/// between.
template <class T>
class Trial {
  public:
    Trial(const Caller& caller, NcclCommunicator& communicator, DataType type, std::size_t count)
        : caller_(caller),
          communicator_(communicator),
          collectives_(communicator),
          memory_(make_memory(caller.runtime(), count * sizeof(T))),
          buffer_{memory_.value(), count, type},
          host_(count) {}

    void reduce(double factor) {
        put();
        collectives_.all_reduce({&buffer_, 1}, factor, caller_.stream()).let_wait(caller_.stream());
        take();
        check_values(host_, {0, host_.size()}, communicator_.size(), factor, "all-reduce");
    }
    void scatter_and_gather() {
        put();
        collectives_.reduce_scatter(buffer_, 1, caller_.stream()).let_wait(caller_.stream());
        collectives_.all_gather(buffer_, caller_.stream()).let_wait(caller_.stream());
        take();
        check_values(host_, {0, host_.size()}, communicator_.size(), 1, "scatter and gather");
    }

  private:
    void put() {
        for (std::size_t i = 0; i < host_.size(); ++i)
            host_[i] = static_cast<T>(value_of(communicator_.rank(), i));
        caller_.copy(memory_.value(), host_.data(), host_.size() * sizeof(T));
    }
    void take() {
        caller_.copy(host_.data(), memory_.value(), host_.size() * sizeof(T));
        caller_.wait();
    }

    const Caller& caller_;
    NcclCommunicator& communicator_;
    NcclCollectives collectives_;
    CudaMemory memory_;
    DeviceSpan buffer_;
    std::vector<T> host_;
};

std::string phases_text(const NcclCommunicator& communicator) {
    std::string text;
    for (const StartPhase& phase : communicator.start_phases())
        text += fmt::format(", {} {}", phase.name, duration_text(phase.seconds));
    return text;
}

}  // namespace

std::string check_sums(Bootstrap& bootstrap) {
    const auto runtime = GpuRuntime::open();
    NcclCommunicator communicator(runtime, bootstrap, selftest_options(sum_limit_s));
    const Caller caller(runtime);
    int done = 0;
    for (const std::size_t count : {1ul, 1000ul, 1ul << 20}) {
        Trial<float> floats(caller, communicator, DataType::float32, count);
        floats.reduce(1);
        floats.reduce(0.5);
        floats.scatter_and_gather();
        Trial<double>(caller, communicator, DataType::float64, count).reduce(0.25);
        Trial<std::int64_t>(caller, communicator, DataType::int64, count).reduce(1);
        done += 5;
    }
    const std::string phases = phases_text(communicator);
    communicator.close();
    return fmt::format("{}: {} sums{}", runtime->nccl_text(), done, phases);
}

std::string check_selection(Bootstrap& bootstrap, const PlannedGpu& gpu) {
    if (bootstrap.size() == 1) {
        const SelectedGpu mine = try_gpu(gpu, bootstrap, start_limit_s);
        return fmt::format("{} is {} ({})", mine.pci, mine.name, mine.uuid);
    }
    try {
        try_gpu(gpu, bootstrap, start_limit_s);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::gpu_shared) throw;
        return fmt::format("refused: {}", error.what());
    }
    throw Error("E690", fmt::format("{} ranks were given one GPU", bootstrap.size()));
}

std::string survive_a_killed_rank(Bootstrap& bootstrap) {
    const auto runtime = GpuRuntime::open();
    NcclCommunicator communicator(runtime, bootstrap, selftest_options(killed_limit_s));
    const Caller caller(runtime);
    Trial<float> trial(caller, communicator, DataType::float32, 1u << 20);
    trial.reduce(1);
    gather_all(bootstrap, "", start_limit_s, "the kill");
    if (bootstrap.rank() + 1 == bootstrap.size()) ::raise(SIGKILL);

    const double begin = now_s();
    const CudaMemory memory = make_memory(runtime, 1u << 20);
    const DeviceSpan buffer{memory.value(), 1u << 18};
    try {
        NcclCollectives(communicator).all_reduce({&buffer, 1}, 1, caller.stream()).wait();
    } catch (const Error& error) {
        const double seconds = now_s() - begin;
        check(!runtime->is_wedged() && seconds < killed_limit_s + abort_limit_s, [&] {
            return Error("E678", "the abort after a killed rank took too long", error.text());
        });
        return fmt::format("gave up after {}: {}", duration_text(seconds), error.text());
    }
    throw Error("E679", "a sum with a killed rank ended as if nothing had happened");
}

}  // namespace lockstep
