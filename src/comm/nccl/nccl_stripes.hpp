// SPDX-License-Identifier: Apache-2.0
// The calls, within a group, that add a buffer up over ranks, spread its stripes over them and
// bring them together.
#pragma once

#include "lockstep/comm/nccl_collectives.hpp"

#include "nccl/nccl_inside.hpp"

#include <cstddef>

namespace lockstep {

/// To or from `peer`. Of a group all messages move at once; of two ranks, in the order of the
/// calls.
void send_to(NcclCommunicator::Inside& inside, int peer, const DeviceSpan& elements);
void receive_from(NcclCommunicator::Inside& inside, int peer, const DeviceSpan& elements);

/// In place: the buffer becomes its sum on every rank, in NCCL's own order.
void sum_everywhere(NcclCommunicator::Inside& inside, const DeviceSpan& buffer, nccl::RedOp op);

/// In place: this rank's stripe_of() the buffer becomes its sum, in NCCL's own order.
void scatter_sum(NcclCommunicator::Inside& inside, const DeviceSpan& buffer, nccl::RedOp op);

/// In place: the buffer becomes every rank's stripe.
void gather_stripes(NcclCommunicator::Inside& inside, const DeviceSpan& buffer);

}  // namespace lockstep
