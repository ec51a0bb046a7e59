// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/recorded.hpp"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

class RecordedExchange : public Exchange {
  public:
    RecordedExchange(std::unique_ptr<Exchange> exchange,
                     const FlatLayout& layout,
                     FlightRecorder& recorder,
                     std::string_view channel)
        : exchange_(std::move(exchange)),
          recorder_(recorder),
          channel_(recorder.add_channel(channel)),
          bytes_(layout.size() * sizeof(float)),
          tickets_(layout.bucket_count()) {
        for (std::size_t b = 0; b < layout.bucket_count(); ++b)
            bucket_bytes_.push_back(layout.bucket(b).size() * sizeof(float));
    }

    FlatMemory& memory() override { return exchange_->memory(); }
    float* slot(int index) override { return exchange_->slot(index); }
    float* values() override { return exchange_->values(); }

    FloatRange own_stripe(std::size_t bucket) const override {
        return exchange_->own_stripe(bucket);
    }
    bool is_first_copy() const override { return exchange_->is_first_copy(); }

    void arrive(std::size_t bucket) override {
        tickets_[bucket] = recorder_.enqueue(channel_,
                                             {.op = FlightOp::reduce,
                                              .bytes = bucket_bytes_[bucket],
                                              .bucket = static_cast<std::int32_t>(bucket)});
        exchange_->arrive(bucket);
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        if (wait == Wait::yes) recorder_.start(tickets_[bucket]);
        const float* sum = exchange_->reduce(bucket, wait);
        if (sum != nullptr) recorder_.end(tickets_[bucket]);
        return sum;
    }

    void publish() override {
        const auto ticket = recorder_.enqueue(channel_, {.op = FlightOp::publish, .bytes = bytes_});
        recorder_.start(ticket);
        exchange_->publish();
        recorder_.end(ticket);
    }

    std::string_view name() const override { return exchange_->name(); }
    std::vector<int> awaited_ranks() const override { return exchange_->awaited_ranks(); }
    double take_wait_s() override { return exchange_->take_wait_s(); }

  private:
    std::unique_ptr<Exchange> exchange_;
    FlightRecorder& recorder_;
    std::uint32_t channel_;
    std::uint64_t bytes_;
    std::vector<std::uint64_t> bucket_bytes_;
    std::vector<FlightRecorder::Ticket> tickets_;  ///< by bucket, of the present step
};

}  // namespace

std::unique_ptr<Exchange> recorded(std::unique_ptr<Exchange> exchange,
                                   const FlatLayout& layout,
                                   FlightRecorder& recorder,
                                   std::string_view channel) {
    return std::make_unique<RecordedExchange>(std::move(exchange), layout, recorder, channel);
}

}  // namespace lockstep
