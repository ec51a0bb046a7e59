// SPDX-License-Identifier: Apache-2.0
#include "loop/output_file.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/new_dataset.hpp"

#include "checkpoint/tensor_files.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// The beginning of a new file at `path`, and where values begin in it. What is left there of one
// that was not finished goes.
std::uint64_t begin_file(const fs::path& path,
                         OutputFormat format,
                         const std::vector<std::int64_t>& shape) {
    if (format == OutputFormat::npy) {
        const std::string header = npy_header(ExportedElement::f32, shape);
        write_file_atomically(path, header);
        return header.size();
    }
    fs::remove(path);
    return create_dataset_file(path, "predictions", ElementType::f32, shape);
}

}  // namespace

OutputFormat output_format(const fs::path& path) {
    const fs::path ending = path.extension();
    if (ending == ".npy") return OutputFormat::npy;
    check(ending == ".h5" || ending == ".hdf5", [&] {
        return Error("E103",
                     fmt::format("'{}' is no name of a file of outputs", path.string()),
                     "its ending says what it is: .npy for NPY, .h5 or .hdf5 for HDF5",
                     "for example --out new.npy, or --out new.h5");
    });
    return OutputFormat::hdf5;
}

OutputFile::OutputFile(const Communicator& ranks,
                       const std::filesystem::path& path,
                       const std::vector<std::int64_t>& shape)
    : ranks_(ranks),
      path_(path),
      partial_(path.parent_path() / fmt::format(".{}.partial", path.filename().string())) {
    const OutputFormat format = output_format(path_);
    const std::string offset = from_root(ranks_, [&] {
        check(!fs::exists(path_), [&] {
            return Error("E407",
                         fmt::format("'{}' exists", path_.string()),
                         "nothing is overwritten",
                         "give another name, or remove it");
        });
        return std::to_string(begin_file(partial_, format, shape));
    });
    data_offset_ = std::stoull(offset);
    agree(ranks_, [&] {
        fd_ = UniqueFd(::open(partial_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!fd_) throw system_error("open", partial_, errno);
    });
}

void OutputFile::write(std::uint64_t sample, std::span<const float> row) {
    std::span<const std::byte> bytes = std::as_bytes(row);
    std::uint64_t offset = data_offset_ + sample * bytes.size();
    while (!bytes.empty()) {
        const ssize_t written =
            ::pwrite(fd_.value(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw system_error("write", partial_, errno);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
        offset += static_cast<std::uint64_t>(written);
    }
}

void OutputFile::finish() {
    agree(ranks_, [&] {
        if (::fsync(fd_.value()) != 0) throw system_error("flush", partial_, errno);
    });
    from_root(ranks_, [&] {
        fs::rename(partial_, path_);
        sync_path(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
        return std::string();
    });
}

}  // namespace lockstep
