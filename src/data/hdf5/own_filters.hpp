// SPDX-License-Identifier: Apache-2.0
// h5py's own filter, lzf, for libhdf5, which has it nowhere but in h5py: what only the library can
// read (texts, other layouts) may lie behind it.
#pragma once

namespace lockstep {

/// For as long as this process lives. Filters whose decoders are libraries of their own are left to
/// plug-ins: lockstep-h5probe is to need libhdf5 alone.
void register_own_filters();

}  // namespace lockstep
