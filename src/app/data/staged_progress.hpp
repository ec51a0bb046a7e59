// SPDX-License-Identifier: Apache-2.0
// Progress of something that comes in stages.
#pragma once

#include "lockstep/observe/progress.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Shows one stage after another; with another total begins another stage.
class StagedProgress {
  public:
    explicit StagedProgress(ProgressSink sink = ProgressSink::log_sink())
        : sink_(std::move(sink)) {}

    void update(std::string_view stage,
                std::uint64_t done,
                std::uint64_t total,
                ProgressUnit unit) {
        if (stage != stage_ || total != total_) {
            if (progress_) progress_->finish();
            progress_ = std::make_unique<Progress>(std::string(stage), total, unit, sink_);
            stage_ = stage;
            total_ = total;
        }
        progress_->update(done);
    }
    void finish() {
        if (progress_) progress_->finish();
    }

  private:
    ProgressSink sink_;
    std::string stage_;
    std::uint64_t total_ = 0;
    std::unique_ptr<Progress> progress_;
};

}  // namespace lockstep
