// SPDX-License-Identifier: Apache-2.0
// A rank's batches as samples where its model computes.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include "task/device_stage.hpp"
#include "task/input.hpp"

#include <memory>
#include <optional>

namespace lockstep {

class SampleFeed {
  public:
    virtual ~SampleFeed() = default;

    /// The next one in place of the one before, which only work that was asked for already may
    /// still read. Errors: those of BatchStream::next().
    virtual const Batch& next() = 0;

    /// What next() gave.
    virtual const Batch& batch() const = 0;

    /// Of that batch. Valid until next() on the device's current stream.
    virtual LeafSamples read(const LeafRows& leaf) = 0;

    /// When the device has enough to do: what can be done for the batch after it is done beside
    /// that. Does not fail; next() does.
    virtual void look_ahead() {}

    /// Seconds that batches which are done with took to get onto the device, since the last call:
    /// copies and transforms, hidden behind the model's work or not. Nothing where there is none.
    virtual std::optional<double> take_copy_s() { return {}; }
};

/// Of `stream`. Without `kernels` each leaf is read on the host when it is asked for. With them a
/// whole batch is copied and transformed on a stream of its own, the next one while the model
/// computes: the bits are the same; `kernels->page_lock` locks the batches of `stream`. Borrows
/// all.
std::unique_ptr<SampleFeed> make_feed(BatchStream& stream,
                                      const InputReader& input,
                                      const InputKernels* kernels);

}  // namespace lockstep
