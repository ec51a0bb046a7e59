// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/recorded.hpp"

#include <utility>

namespace lockstep {
namespace {

/// One channel of a recorder.
class Channel {
  public:
    Channel(FlightRecorder& recorder, std::string_view name)
        : recorder_(recorder), id_(recorder.add_channel(name)) {}

    /// Runs `work` as `call`. A call that throws stays without an end: the others may be in it.
    template <class Work>
    void note(const FlightCall& call, Work&& work) {
        const auto ticket = recorder_.enqueue(id_, call);
        recorder_.start(ticket);
        work();
        recorder_.end(ticket);
    }

  private:
    FlightRecorder& recorder_;
    std::uint32_t id_;
};

FlightCall call_of(FlightOp op, std::size_t count, DataType type) {
    return {.op = op, .type = type, .bytes = count * size_of(type)};
}

class RecordedCollectives : public Collectives {
  public:
    RecordedCollectives(std::unique_ptr<Collectives> inner,
                        FlightRecorder& recorder,
                        std::string_view channel)
        : inner_(std::move(inner)), channel_(recorder, channel) {}

    std::string_view name() const override { return inner_->name(); }
    std::byte* lend(std::size_t bytes) override { return inner_->lend(bytes); }
    void all_reduce(void* data, std::size_t count, DataType type) override {
        channel_.note(call_of(FlightOp::all_reduce, count, type),
                      [&] { inner_->all_reduce(data, count, type); });
    }
    void reduce_scatter(void* data, std::size_t count, DataType type) override {
        channel_.note(call_of(FlightOp::reduce_scatter, count, type),
                      [&] { inner_->reduce_scatter(data, count, type); });
    }
    void all_gather(void* data, std::size_t count, DataType type) override {
        channel_.note(call_of(FlightOp::all_gather, count, type),
                      [&] { inner_->all_gather(data, count, type); });
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        channel_.note({.op = FlightOp::broadcast, .bytes = bytes},
                      [&] { inner_->broadcast(data, bytes, root); });
    }
    void barrier() override {
        channel_.note({.op = FlightOp::barrier}, [&] { inner_->barrier(); });
    }
    void set_deadline(double seconds) override { inner_->set_deadline(seconds); }

  private:
    std::unique_ptr<Collectives> inner_;
    Channel channel_;
};

}  // namespace

std::unique_ptr<Collectives> recorded(std::unique_ptr<Collectives> collectives,
                                      FlightRecorder& recorder,
                                      std::string_view channel) {
    return std::make_unique<RecordedCollectives>(std::move(collectives), recorder, channel);
}

}  // namespace lockstep
