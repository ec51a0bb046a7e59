// SPDX-License-Identifier: Apache-2.0
// A rank's batches as samples on its model's device.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include "task/input.hpp"

#include <memory>
#include <optional>

namespace lockstep {

class SampleFeed {
  public:
    virtual ~SampleFeed() = default;

    /// Replaces the batch by the next one; only work enqueued before may still read the old one.
    /// Errors: those of BatchStream::next().
    virtual const Batch& next() = 0;

    /// Returns the present batch.
    virtual const Batch& batch() const = 0;

    /// Returns samples of that batch. They are valid until next() on the device's current stream.
    virtual LeafSamples read(const LeafRows& leaf) = 0;

    /// Prepares the next batch in parallel. Call it when the device has enough work. Does not fail;
    /// next() does.
    virtual void look_ahead() {}

    /// Returns the seconds since the last call for which finished batches were copied and
    /// transformed on the device, hidden behind the model's work or not. Nothing without a device.
    virtual std::optional<double> take_copy_s() { return {}; }
};

/// Makes a feed of `stream`. Without `kernels` each leaf is read on the host when it is requested.
/// With them a whole batch is copied and transformed on a separate stream, the next one while the
/// model computes: the bits are the same. `kernels->page_lock` locks the batches of `stream`.
/// Borrows all.
std::unique_ptr<SampleFeed> make_feed(BatchStream& stream,
                                      const InputReader& input,
                                      const InputKernels* kernels);

}  // namespace lockstep
