// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/pack.hpp"

#include "npy_header.hpp"
#include "pack_space.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_batch_bytes = std::uint64_t{4} << 20;

// A new NPY file for the rows of one field, written from beginning to end.
struct NpyFile {
    NpyFile(const fs::path& folder, const Field& field, std::uint64_t rows)
        : path(folder / (field.name + ".npy")),
          fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
        if (!fd) throw system_error("create", path, errno);
        std::vector<std::uint64_t> shape{rows};
        for (const std::int64_t size : field.shape)
            shape.push_back(static_cast<std::uint64_t>(size));
        write_all(fd.value(), bytes_of(npy_header_text(field.type, shape)), path);
    }

    fs::path path;
    UniqueFd fd;
};

std::vector<RowRun> runs_of(const std::vector<std::uint64_t>& samples, std::uint64_t all) {
    if (samples.empty()) return {{0, all}};
    std::vector<RowRun> runs;
    for (const std::uint64_t sample : samples) {
        check(sample < all, [&] {
            return Error("E102",
                         fmt::format("there is no sample {}", grouped(sample)),
                         fmt::format("the data set has samples 0 to {}", grouped(all - 1)),
                         "give numbers in that range");
        });
        if (!runs.empty() && runs.back().first + runs.back().rows == sample)
            ++runs.back().rows;
        else
            runs.push_back({sample, 1});
    }
    return runs;
}

// Appends the rows of a run to the files of all fields; calls `tell` with rows that were added.
void write_run(const std::shared_ptr<const DatasetIndex>& index,
               const RowRun& run,
               const std::vector<NpyFile>& files,
               const std::function<void(std::uint64_t)>& tell) {
    const std::uint64_t usual = usual_batch_bytes / index->manifest().bytes_per_sample();
    const std::uint64_t at_once = std::clamp<std::uint64_t>(usual, 1, run.rows);
    const StreamOptions options{.order = OrderKind::sequential,
                                .batch = static_cast<std::int64_t>(at_once)};
    BatchStream stream(index, options, {0, run.first});
    for (std::uint64_t done = 0; done < run.rows;) {
        const Batch batch = stream.next();
        const auto rows = std::min<std::uint64_t>(batch.sample_ids.size(), run.rows - done);
        expect(rows > 0 && batch.sample_ids[0] == run.first + done,
               "sequential order is the stored one");
        for (std::size_t f = 0; f < files.size(); ++f)
            write_all(files[f].fd.value(),
                      batch.fields[f].first(rows * index->fields()[f].bytes_per_sample()),
                      files[f].path);
        done += rows;
        tell(rows);
    }
}

}  // namespace

void export_dataset(std::shared_ptr<const DatasetIndex> index,
                    const ExportOptions& options,
                    const ExportReport& report) {
    check_is_free(options.output);
    const std::vector<RowRun> runs = runs_of(options.samples, index->samples());
    std::uint64_t done = 0, total = 0;
    for (const RowRun& run : runs) total += run.rows;
    Workspace workspace(options.output);
    check_room(workspace.path(),
               total * index->manifest().bytes_per_sample(),
               "the export needs",
               "",
               "use another file system, or export some samples only");
    std::vector<NpyFile> files;
    for (const Field& field : index->fields()) files.emplace_back(workspace.path(), field, total);
    for (const RowRun& run : runs)
        write_run(index, run, files, [&](std::uint64_t rows) {
            done += rows;
            if (report) report(done);
        });
    for (const NpyFile& file : files)
        if (::fsync(file.fd.value()) != 0) throw system_error("flush", file.path, errno);
    files.clear();
    workspace.commit();
}

}  // namespace lockstep
