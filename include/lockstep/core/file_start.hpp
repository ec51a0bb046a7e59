// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tells the kind of a file by its first bytes, for messages about files of an unexpected kind.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Kinds of files that users give by mistake as data sets or weights.
enum class FileKind {
    unknown,
    empty,
    zip,
    numpy_archive,  ///< .npz
    torch_save,     ///< a zip archive that torch.save() wrote
    torch_script,   ///< a zip archive that torch.jit.save() wrote
    pickle,         ///< Python objects, as torch.save() wrote them before PyTorch 1.6
    json,
    hdf5,
    gzip,
    zstd,
    numpy,  ///< .npy
    png,
    jpeg,
    program,
    web_page,
    lfs_pointer,  ///< the text that Git LFS keeps in place of a large file
    netcdf_classic,
    idx,  ///< images of MNIST's format
    zeros,
    text,  ///< text of no kind above
};

/// Number of first bytes that identify every kind.
constexpr std::size_t file_start_bytes = 512;

/// Returns the kind of a file that begins with `start`. If `start` is shorter than
/// `file_start_bytes` and the file is longer, an archive may read as FileKind::zip only.
FileKind file_kind(std::string_view start);

/// Returns words for messages: "it begins like a zip archive", "it is empty", "it begins with the
/// bytes 01 02".
std::string file_start_text(std::string_view start);

}  // namespace lockstep
