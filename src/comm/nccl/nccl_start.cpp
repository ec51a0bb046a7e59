// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"

#include "nccl/nccl_inside.hpp"
#include "nccl/rank_facts.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Inside = NcclCommunicator::Inside;

constexpr double grace_s = 2;  // for the others' words on a start that failed

NcclRankFacts read_facts(const GpuRuntime& runtime, const NcclOptions& options) {
    const CudaApi& cuda = runtime.cuda();
    int count = 0;
    check_cuda(cuda, cuda.device_count(&count), "cudaGetDeviceCount");
    check(options.device >= 0 && options.device < count,
          "E670",
          fmt::format("no GPU {} on '{}': it has {}", options.device, host_name(), count),
          "each rank needs a GPU of its own",
          "start at most as many ranks on a node as it has GPUs");
    check_cuda(cuda, cuda.set_device(options.device), "cudaSetDevice");
    CudaDeviceFacts gpu;
    check_cuda(cuda, cuda.device_facts(options.device, &gpu), "cudaGetDeviceProperties");
    return {host_name(),
            nccl_host_id(options.environment),
            gpu.uuid,
            gpu.pci,
            runtime.nccl().version(),
            nccl_settings(options.environment)};
}

/// Small whole numbers, so that their sums are exact in any order.
float proof_value(int rank, std::size_t i) {
    return static_cast<float>((rank % 8 + 1) * static_cast<int>(i % 4 + 1));
}

void check_proof(const std::vector<float>& got, const Inside& inside, int size) {
    for (std::size_t i = 0; i < got.size(); ++i) {
        double sum = 0;
        for (int rank = 0; rank < size; ++rank) sum += proof_value(rank, i);
        check(got[i] == static_cast<float>(sum), [&] {
            return Error(
                "E679",
                fmt::format("the first sum of communicator '{}' is wrong: element {} is {}, not {}",
                            inside.options().name,
                            i,
                            got[i],
                            sum),
                fmt::format("{} gave it", inside.runtime()->nccl_text()),
                "another NCCL version (LOCKSTEP_NCCL_LIB), or NCCL_P2P_DISABLE=1 to leave out a "
                "broken path between GPUs; nccl-tests show it, too");
        });
    }
}

std::string summary(const std::vector<StartPhase>& phases) {
    std::string text;
    for (const StartPhase& phase : phases)
        text += fmt::format(", {} {}", phase.name, duration_text(phase.seconds));
    return text;
}

constexpr int most_for_one_id = 256;  // above, NCCL staggers ranks (NCCL_UID_STAGGER_THRESHOLD)
constexpr int ranks_of_an_id = 128;

/// The guide's rankHasRoot(): the first `ranks % ids` ids have one rank more than the others.
bool makes_id(int rank, int ranks, int ids) {
    const int more = ranks % ids, each = ranks / ids, limit = more * (each + 1);
    return rank < limit ? rank % (each + 1) == 0 : (rank - limit) % each == 0;
}

/// Host memory of copies under way. Who gives up on them leaves it behind: the device may still
/// write there.
class CopiedFloats {
  public:
    explicit CopiedFloats(std::size_t count)
        : values_(std::make_unique<std::vector<float>>(count)) {}
    ~CopiedFloats() {
        if (!is_settled_) static_cast<void>(values_.release());
    }
    CopiedFloats& operator=(CopiedFloats&&) = delete;

    std::vector<float>& values() { return *values_; }
    void settle() { is_settled_ = true; }

  private:
    std::unique_ptr<std::vector<float>> values_;
    bool is_settled_ = false;
};

}  // namespace

NcclCommunicator::Inside::Inside(std::shared_ptr<GpuRuntime> runtime,
                                 Bootstrap& bootstrap,
                                 const NcclOptions& options)
    : runtime_(std::move(runtime)),
      bootstrap_(bootstrap),
      options_(options),
      handle_(std::make_shared<NcclHandle>(runtime_->nccl(), options.name)) {
    runtime_->add(handle_);
}

double NcclCommunicator::Inside::start_seconds_left() const {
    return std::max(0.0, start_end_s_ - now_s());
}

void NcclCommunicator::Inside::run_phase(const std::string& name,
                                         const std::function<void()>& body) {
    phase_ = name;
    const double begin = now_s();
    body();
    phases_.push_back({name, now_s() - begin});
}

/// Collective. Everyone's text; the error of a rank becomes every rank's.
std::vector<std::string> NcclCommunicator::Inside::exchange(
    const std::function<std::string()>& mine) {
    return gather_or_fail(bootstrap_,
                          mine,
                          start_seconds_left(),
                          fmt::format("{} of NCCL communicator '{}'", phase_, options_.name));
}

void NcclCommunicator::Inside::agree_on_facts() {
    const auto texts = exchange([&] {
        const std::string facts = serialize(read_facts(*runtime_, options_));
        stream_ = make_stream(runtime_);
        return facts;
    });
    std::vector<NcclRankFacts> facts;
    std::set<std::string> gpus;
    for (const std::string& text : texts) {
        facts.push_back(deserialize<NcclRankFacts>(text, "another rank's facts"));
        gpus.insert(facts.back().gpu_uuid);
        hosts_.push_back(facts.back().host_id);
    }
    check_agreement(facts);
    for (const KnownFault& fault : known_nccl_faults(facts))
        once(Level::warn, "{}: {} ({})", fault.what, fault.fix, fault.source);
    if (gpus.size() < facts.size())
        once(Level::warn,
             "{} ranks share {} GPU(s) by NCCL_HOSTID: a trial of bits, not of speed",
             facts.size(),
             gpus.size());
}

void NcclCommunicator::Inside::exchange_ids() {
    const int count = unique_id_count(bootstrap_.size(), bool(nccl().comm_init_rank_scalable));
    const std::vector<int> makers = unique_id_makers(bootstrap_.size(), count);
    const auto texts = exchange([&]() -> std::string {
        if (std::ranges::find(makers, bootstrap_.rank()) == makers.end()) return {};
        nccl::UniqueId id{};
        const nccl::Result result = nccl().get_unique_id(&id);
        if (result != nccl::success) throw nccl_error(nccl(), nullptr, result, "ncclGetUniqueId");
        return {id.internal.data(), id.internal.size()};
    });
    ids_.resize(makers.size());
    for (std::size_t i = 0; i < makers.size(); ++i) {
        const std::string& text = texts[static_cast<std::size_t>(makers[i])];
        expect(text.size() == sizeof(nccl::UniqueId), "a maker's id");
        std::memcpy(ids_[i].internal.data(), text.data(), text.size());
    }
}

Error NcclCommunicator::Inside::late_start() {
    const std::string late = fmt::format("communicator '{}' was not ready within {}",
                                         options_.name,
                                         duration_text(options_.init_deadline_s));
    announce(fmt::format("{} (in '{}')", late, phase_));
    std::vector<int> silent;
    std::set<int> heard = {bootstrap_.rank()};
    std::string words;
    const double end = now_s() + grace_s;
    while (now_s() < end && static_cast<int>(heard.size()) < bootstrap_.size()) {
        if (const auto notice = bootstrap_.notice()) {
            heard.insert(notice->rank);
            words += fmt::format("\nrank {}: {}", notice->rank, notice->text);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (int rank = 0; rank < bootstrap_.size(); ++rank)
        if (!heard.contains(rank)) silent.push_back(rank);
    if (!silent.empty()) words += fmt::format("\nno word from rank(s) {}", fold_ranks(silent));
    return Error(
        "E676",
        fmt::format("{}: rank {} was in '{}'", late, bootstrap_.rank(), phase_),
        fmt::format("NCCL on the ranks cannot connect, or a rank hangs{}", words),
        "name the interface that all nodes share (NCCL_SOCKET_IFNAME), look for a firewall "
        "between them, and see NCCL_DEBUG=INFO");
}

void NcclCommunicator::Inside::init_nccl() {
    nccl::Config config;
    config.blocking = 0;
    config.comm_name = options_.name.c_str();
    const int rank = bootstrap_.rank(), size = bootstrap_.size();
    if (ids_.size() == 1) {
        handle_->call("ncclCommInitRankConfig", [&](nccl::Comm& comm) {
            return nccl().comm_init_rank_config(&comm, size, ids_[0], rank, &config);
        });
    } else {
        handle_->call("ncclCommInitRankScalable", [&](nccl::Comm& comm) {
            return nccl().comm_init_rank_scalable(
                &comm, size, rank, static_cast<int>(ids_.size()), ids_.data(), &config);
        });
    }
    wait([](nccl::Result state) { return state == nccl::success; },
         start_seconds_left(),
         [&] { return late_start(); });
}

void NcclCommunicator::Inside::prove() {
    CopiedFloats copied(64);
    std::vector<float>& values = copied.values();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = proof_value(bootstrap_.rank(), i);
    const std::size_t bytes = values.size() * sizeof(float);
    // Kept until the sum is over: to free it waits for that, which only an abort may end.
    const auto memory = std::make_shared<const CudaMemory>(make_memory(runtime_, bytes));
    const auto pending = end_of("the first sum", memory);
    const auto wait_for_stream = [&] {
        record(*runtime_, pending->end, stream());
        wait([&](nccl::Result) { return has_passed(pending->end); },
             start_seconds_left(),
             [&] { return late_start(); });
    };
    copy_async(*runtime_, memory->value(), values.data(), bytes, stream());
    handle_->call("ncclAllReduce", [&](nccl::Comm& comm) {
        return nccl().all_reduce(memory->value(),
                                 memory->value(),
                                 values.size(),
                                 nccl::type_float32,
                                 nccl::sum,
                                 comm,
                                 stream());
    });
    settle("the first sum");
    wait_for_stream();  // before a copy to memory that is not page-locked, which waits inside CUDA
    copy_async(*runtime_, values.data(), memory->value(), bytes, stream());
    wait_for_stream();
    copied.settle();
    check_proof(values, *this, bootstrap_.size());
}

void NcclCommunicator::Inside::start() {
    start_end_s_ = now_s() + options_.init_deadline_s;
    handle_->enter(NcclState::initializing);
    guarded([&] {
        run_phase("facts", [&] { agree_on_facts(); });
        run_phase("unique id", [&] { exchange_ids(); });
        run_phase("barrier", [&] { exchange([] { return std::string(); }); });
        run_phase("init", [&] { init_nccl(); });
        run_phase("first sum", [&] { prove(); });
        handle_->enter(NcclState::ready);
    });
    once(Level::info,
         "NCCL communicator '{}': {} ranks{}",
         options_.name,
         bootstrap_.size(),
         summary(phases_));
    phase_ = "running";
}

void NcclCommunicator::Inside::finish() {
    guarded([&] {
        if (!pending_.empty()) wait_for(*pending_.back());
        pending_.clear();
        phase_ = "finalize";
        handle_->enter(NcclState::finalizing);
        handle_->call("ncclCommFinalize",
                      [&](nccl::Comm& comm) { return nccl().comm_finalize(comm); });
        settle("finalize");
        handle_->enter(NcclState::finalized);
        handle_->call("ncclCommDestroy", [&](nccl::Comm& comm) {
            return nccl().comm_destroy(std::exchange(comm, nullptr));
        });
        handle_->enter(NcclState::destroyed);
    });
}

int unique_id_count(int ranks, bool has_scalable_init) {
    if (ranks <= most_for_one_id || !has_scalable_init) return 1;
    return (ranks + ranks_of_an_id - 1) / ranks_of_an_id;
}

std::vector<int> unique_id_makers(int ranks, int ids) {
    std::vector<int> makers;
    for (int rank = 0; rank < ranks; ++rank)
        if (makes_id(rank, ranks, ids)) makers.push_back(rank);
    return makers;
}

}  // namespace lockstep
