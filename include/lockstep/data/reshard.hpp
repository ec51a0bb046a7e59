// SPDX-License-Identifier: Apache-2.0
/// @file
/// A packed data set in another layout: other shards, codec or blocks, the same samples.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/pack.hpp"

#include <memory>

namespace lockstep {

/// Rows of a data set, as stored; each block is read once as long as rows are asked for in order.
/// Keeps `cached_blocks` blocks of each field. Names, statistics and the order of rows are those of
/// the data set; the fingerprint is made from its digest. Errors of read(): those of damage (E213
/// naming shard, field, block, offset and samples; E204; E210).
std::unique_ptr<RowSource> open_packed(std::shared_ptr<const DatasetIndex> index,
                                       std::size_t cached_blocks);

/// Collective. Packs `input` into options.output, streaming: memory is for some blocks per thread.
/// Samples and their order stay, unless options.shuffle_seed is given: then they are first
/// distributed to files beside the output, of which each fits into `memory_bytes`, so that nothing
/// is read at random. Blocks keep their rows, by which training's order goes, where
/// options.block_rows is 0. Everything else is as in pack_dataset(): parallel, resumable, verified,
/// atomic; options.images, labels, classes and class_names are ignored.
PackResult reshard_dataset(std::shared_ptr<const DatasetIndex> input,
                           const PackOptions& options,
                           std::uint64_t memory_bytes,
                           const PackReport& report = {});

}  // namespace lockstep
