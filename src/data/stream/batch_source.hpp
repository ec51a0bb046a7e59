// SPDX-License-Identifier: Apache-2.0
// The sources of a BatchStream: read ahead from files, or gathered from memory.
#pragma once

#include "lockstep/data/batch_stream.hpp"

#include "batch_buffers.hpp"
#include "read_plan.hpp"
#include "stream_memory.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// A source of batches with the contract of BatchStream. The destructor stops its threads.
class BatchSource {
  public:
    BatchSource() = default;
    BatchSource(const BatchSource&) = delete;
    BatchSource& operator=(const BatchSource&) = delete;
    virtual ~BatchSource() = default;

    virtual Batch next() = 0;
    virtual StreamStats stats() const = 0;
    virtual std::uint64_t memory_bytes() const = 0;
    virtual std::string memory_text() const = 0;
};

/// Makes the batch of a step whose rows and sample ids are in the room of `lent`.
Batch make_batch(const Step& step,
                 const StreamOptions& options,
                 const DatasetIndex& index,
                 BatchBuffers::Lent lent);

/// Makes a source that gathers from `rows`, which are sealed. Errors: E106.
std::unique_ptr<BatchSource> make_resident_source(std::shared_ptr<const DatasetIndex> index,
                                                  std::shared_ptr<const ResidentRows> rows,
                                                  const StreamOptions& options,
                                                  StreamPosition start);

}  // namespace lockstep
