// SPDX-License-Identifier: Apache-2.0
// The device as LibTorch sees it.
#pragma once

#include "simcuda/machine.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace simcuda {

/// Of CUDA's memory; throws c10::OutOfMemoryError.
c10::Allocator& torch_allocator();

/// Counts memory that was asked for in vain.
void note_failed_allocation();

Stream& stream_of(c10::Stream stream);

/// The calling thread's current stream of a device.
c10::Stream current_stream(c10::DeviceIndex device);

/// That of its current device.
Stream& own_stream();

/// Counts a call; c10::AcceleratorError where the GPU is lost.
void throw_if_lost();

/// What an operator on the host begins with: all work before it is done. Throws as throw_if_lost().
void wait_for_current_stream();

}  // namespace simcuda
