// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/infer.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/run/tensor_files.hpp"

#include "loop/evaluate.hpp"
#include "loop/trained_run.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// The kind of an outputs file: NPY, or HDF5 with one data set, "predictions".
enum class OutputFormat { npy, hdf5 };

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

// By the file's ending.
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

/// A file of one row a sample that all ranks write together: f32 of `shape`, [samples, ...]; beside
/// its place as .NAME.partial until it is whole. The same values lie in either format, one behind
/// the other.
class OutputFile {
  public:
    /// Collective. Errors: E103, as output_format(); E407 if it exists, E401.
    OutputFile(const Communicator& ranks,
               const std::filesystem::path& path,
               const std::vector<std::int64_t>& shape);

    /// The row of one sample. Errors: E402, E405.
    void write(std::uint64_t sample, std::span<const float> row);

    /// Collective. Every row was written by some rank.
    void finish();

  private:
    Communicator ranks_;
    std::filesystem::path path_, partial_;
    std::uint64_t data_offset_ = 0;
    UniqueFd fd_;
};

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

// Samples are cut as the run's own evaluations cut them: kernels may give other bits for another
// number of rows. Ranks beyond its virtual ones have nothing to do.
LeafRange leaves_here(const Communicator& ranks, int virtual_ranks) {
    const int busy = std::min(ranks.size(), virtual_ranks);
    if (ranks.rank() >= busy) return {virtual_ranks, virtual_ranks};
    return leaves_of(ranks.rank(), busy, virtual_ranks);
}

// The rows of the outputs of a part's samples: contiguous, by number.
class RowsOfPart {
  public:
    RowsOfPart(std::uint64_t samples, const SamplePart& part) : part_(part) {
        if (part.side == SamplePart::Side::all) return;
        for (std::uint64_t sample = 0; sample < samples; ++sample)
            if (part.holds(sample)) samples_.push_back(sample);
    }
    std::uint64_t of(std::uint64_t sample) const {
        if (part_.side == SamplePart::Side::all) return sample;
        const auto found = std::ranges::lower_bound(samples_, sample);
        return static_cast<std::uint64_t>(found - samples_.begin());
    }

  private:
    SamplePart part_;
    std::vector<std::uint64_t> samples_;
};

}  // namespace

InferResult infer(const InferSettings& settings, const Communicator& ranks) {
    agree(ranks, [&] {
        if (!settings.outputs.empty()) output_format(settings.outputs);
    });
    const TrainedRun trained = open_trained_run(settings, ranks);
    const TrainSettings& learned = trained.run.settings;
    Evaluator evaluator(trained.data,
                        *trained.learned_from,
                        ranks,
                        leaves_here(ranks, learned.virtual_ranks),
                        learned,
                        *trained.task,
                        trained.part);
    InferResult result{.evaluation = {},
                       .confusion = {},
                       .samples = samples_in(trained.data->blocks(), trained.part),
                       .shape = {}};
    if (settings.outputs.empty()) {
        PhaseClock clock;
        const Evaluation found = evaluator.run(*trained.model, clock);
        result.evaluation = {found.metrics, found.text};
        result.confusion = found.confusion;
        result.by_class = found.by_class;
        return result;
    }
    result.shape = trained.task->output_shape();
    result.shape.insert(result.shape.begin(), static_cast<std::int64_t>(result.samples));
    OutputFile file(ranks, settings.outputs, result.shape);
    const RowsOfPart rows(trained.data->samples(), trained.part);
    evaluator.for_each_output(*trained.model,
                              [&](std::uint64_t sample, std::span<const float> values) {
                                  file.write(rows.of(sample), values);
                              });
    evaluator.check_files();
    file.finish();
    return result;
}

}  // namespace lockstep
