// SPDX-License-Identifier: Apache-2.0
// The heavy part of LibTorch, compiled once.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>
