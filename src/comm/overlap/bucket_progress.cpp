// SPDX-License-Identifier: Apache-2.0
#include "overlap/bucket_progress.hpp"

#include "overlap/bucket_pipeline.hpp"

namespace lockstep {
namespace {

class InLineProgress : public BucketProgress {
  public:
    InLineProgress(Exchange& exchange, std::size_t buckets) : pipeline_(exchange, buckets) {}

    void restart() override { pipeline_.restart(); }
    void launch_before(std::size_t end) override {
        pipeline_.arrive_before(end);
        pipeline_.reduce(Wait::no);
    }
    void finish() override { pipeline_.reduce(Wait::yes); }
    const float* sum(std::size_t bucket) const override { return pipeline_.sum(bucket); }
    double take_busy_s() override { return pipeline_.take_busy_s(); }

  private:
    BucketPipeline pipeline_;
};

}  // namespace

ProgressMode progress_mode_for(int cpus, int compute_threads) {
    return cpus > compute_threads ? ProgressMode::thread : ProgressMode::in_line;
}

std::unique_ptr<BucketProgress> make_progress(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress) {
    if (progress.mode == ProgressMode::thread)
        return make_comm_thread(exchange, buckets, progress.cpu);
    return std::make_unique<InLineProgress>(exchange, buckets);
}

}  // namespace lockstep
