// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/recorded.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Its memory is a GPU's if the recorded exchange's is. Work enqueued there has ended when the host
/// has waited for it: a rank that hangs in that wait is recorded as waiting for the work that is
/// still open.
class RecordedExchange : public Exchange, private FlatMemory {
  public:
    RecordedExchange(std::unique_ptr<Exchange> exchange,
                     const FlatLayout& layout,
                     FlightRecorder& recorder,
                     std::string_view channel)
        : exchange_(std::move(exchange)),
          recorder_(recorder),
          channel_(recorder.add_channel(channel)),
          is_on_device_(&exchange_->memory() != &host_memory()),
          bytes_(layout.size() * sizeof(float)),
          present_{std::vector<FlightRecorder::Ticket>(layout.bucket_count()), {}} {
        exchange_->on_long_wait([this](const std::optional<GpuStand>& stand) { note(stand); });
        for (std::size_t b = 0; b < layout.bucket_count(); ++b)
            bucket_bytes_.push_back(layout.bucket(b).size() * sizeof(float));
    }

    ~RecordedExchange() override { exchange_->on_long_wait({}); }
    RecordedExchange& operator=(RecordedExchange&&) = delete;

    FlatMemory& memory() override { return is_on_device_ ? *this : exchange_->memory(); }
    float* slot(int index) override { return exchange_->slot(index); }
    float* values() override { return exchange_->values(); }

    FloatRange own_stripe(std::size_t bucket) const override {
        return exchange_->own_stripe(bucket);
    }
    bool is_first_copy() const override { return exchange_->is_first_copy(); }
    int sharers() const override { return exchange_->sharers(); }

    void arrive(std::size_t bucket) override {
        present_.buckets[bucket] = recorder_.enqueue(channel_,
                                                     {.op = FlightOp::reduce,
                                                      .bytes = bucket_bytes_[bucket],
                                                      .bucket = static_cast<std::int32_t>(bucket)});
        exchange_->arrive(bucket);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        const FlightRecorder::Ticket ticket = present_.buckets[bucket];
        if (wait == Wait::yes) recorder_.start(ticket);
        const float* sum = exchange_->reduce(bucket, wait);
        if (sum != nullptr) end(ticket);
        return sum;
    }

    void publish() override {
        present_.publish = recorder_.enqueue(channel_, {.op = FlightOp::publish, .bytes = bytes_});
        recorder_.start(present_.publish);
        exchange_->publish();
        end(present_.publish);
        before_ = present_;
        ++step_;
    }

    std::string_view name() const override { return exchange_->name(); }
    std::vector<int> awaited_ranks() const override { return exchange_->awaited_ranks(); }
    double take_wait_s() override { return exchange_->take_wait_s(); }
    std::vector<LinkTimes> take_links() override { return exchange_->take_links(); }

  private:
    void clear(float* at, std::size_t count) override { exchange_->memory().clear(at, count); }
    void add(float* into, const float* from, std::size_t count) override {
        exchange_->memory().add(into, from, count);
    }
    void copy(float* to, const float* from, std::size_t count) override {
        exchange_->memory().copy(to, from, count);
    }
    void wait() override {
        exchange_->memory().wait();
        for (const FlightRecorder::Ticket& ticket : open_) recorder_.end(ticket);
        open_.clear();
    }

    struct StepTickets {
        std::vector<FlightRecorder::Ticket> buckets;
        FlightRecorder::Ticket publish;
    };

    void end(const FlightRecorder::Ticket& ticket) {
        if (!is_on_device_) return recorder_.end(ticket);
        recorder_.start(ticket);  // the sum was there at once, for the host
        open_.push_back(ticket);
    }

    /// The host is at most one step ahead of the GPU.
    void note(const std::optional<GpuStand>& stand) {
        if (!stand || stand->step + 1 < step_) return recorder_.forget_gpu();
        const StepTickets& tickets = stand->step == step_ ? present_ : before_;
        const auto ticket = stand->bucket < 0
                                ? tickets.publish
                                : tickets.buckets[static_cast<std::size_t>(stand->bucket)];
        recorder_.note_gpu(ticket, *stand);
    }

    std::unique_ptr<Exchange> exchange_;
    FlightRecorder& recorder_;
    std::uint32_t channel_;
    bool is_on_device_;
    std::uint64_t bytes_;
    std::vector<std::uint64_t> bucket_bytes_;
    StepTickets present_, before_;              ///< tickets of this step and the last
    std::vector<FlightRecorder::Ticket> open_;  ///< ended for the host, not for the GPU
    std::int64_t step_ = 0;
};

/// Collective. A node is named by its lowest rank.
NodeMap map_of(const Communicator& ranks) {
    const Communicator node = ranks.split_by_node();
    const int first = std::stoi(node.broadcast(std::to_string(ranks.rank())));
    return node_map(ranks.all_gather(own_place(first)), ranks.rank(), first);
}

/// Collective. Whether every node can write into `folder`.
bool is_shared(const Communicator& ranks, const NodeMap& map, const fs::path& folder) {
    const bool is_first = map.nodes[map.own].ranks.front().rank == map.rank;
    std::array<std::int64_t, 1> failed = {is_first && !can_beat(map, folder) ? 1 : 0};
    ranks.all_reduce_max(failed);
    return failed[0] == 0;
}

}  // namespace

std::unique_ptr<Exchange> recorded(std::unique_ptr<Exchange> exchange,
                                   const FlatLayout& layout,
                                   FlightRecorder& recorder,
                                   std::string_view channel) {
    return std::make_unique<RecordedExchange>(std::move(exchange), layout, recorder, channel);
}

std::unique_ptr<NodeWatch> watch_nodes(const Communicator& ranks,
                                       const std::function<fs::path()>& make_folder,
                                       NodeWatchSettings settings) {
    NodeMap map = map_of(ranks);
    if (map.nodes.size() < 2) return nullptr;
    const fs::path folder = from_root(ranks, [&] { return make_folder().string(); });
    if (folder.empty() || !is_shared(ranks, map, folder)) return nullptr;
    return std::make_unique<NodeWatch>(std::move(map), folder, settings);
}

}  // namespace lockstep
