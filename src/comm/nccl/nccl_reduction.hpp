// SPDX-License-Identifier: Apache-2.0
// How NCCL is told what to sum, and what belongs to one launch.
#pragma once

#include "lockstep/comm/data_type.hpp"

#include "nccl/nccl_inside.hpp"

#include <map>
#include <string>

namespace lockstep {

nccl::DataTypeCode nccl_type(DataType type);

/// Calls between construction and end() are one launch. Left by an exception, the group is closed
/// all the same: an open one would swallow every later call of this thread.
class NcclGroup {
  public:
    explicit NcclGroup(NcclCommunicator::Inside& inside);
    ~NcclGroup();
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    /// NCCL takes the calls in the background: until it has, nothing may follow on the stream.
    void close();

    /// Closes, and waits until NCCL has taken the calls.
    void end(const std::string& what);

  private:
    NcclCommunicator::Inside& inside_;
    bool is_open_ = true;
};

/// The operator for "sum, times a factor" of each data type. NCCL multiplies each input before it
/// adds, in the type itself.
class NcclReductions {
  public:
    NcclReductions(NcclCommunicator::Inside& inside, double factor)
        : inside_(inside), factor_(factor) {}
    ~NcclReductions();
    NcclReductions(const NcclReductions&) = delete;
    NcclReductions& operator=(const NcclReductions&) = delete;

    /// Makes what of() gives. Expects a floating-point type unless the factor is 1.
    void prepare(DataType type);
    nccl::RedOp of(DataType type) const;

  private:
    NcclCommunicator::Inside& inside_;
    double factor_;
    std::map<DataType, nccl::RedOp> made_;
};

}  // namespace lockstep
