// SPDX-License-Identifier: Apache-2.0
#include "task/sample_feed.hpp"

#include <optional>

namespace lockstep {
namespace {

class HostFeed : public SampleFeed {
  public:
    HostFeed(BatchStream& stream, const InputReader& input) : stream_(stream), input_(input) {}

    const Batch& next() override {
        batch_.reset();
        return batch_.emplace(stream_.next());
    }

    const Batch& batch() const override { return *batch_; }
    LeafSamples read(const LeafRows& leaf) override { return input_.read(*batch_, leaf); }

  private:
    BatchStream& stream_;
    const InputReader& input_;
    std::optional<Batch> batch_;
};

}  // namespace

std::unique_ptr<SampleFeed> make_feed(BatchStream& stream,
                                      const InputReader& input,
                                      const InputKernels* kernels) {
    if (kernels != nullptr) return make_device_feed(stream, input, *kernels);
    return std::make_unique<HostFeed>(stream, input);
}

}  // namespace lockstep
