// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "field_plan.hpp"
#include "hdf5/h5.hpp"
#include "hdf5/sandbox.hpp"
#include "spool.hpp"
#include "stream/shard_files.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_read_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t most_read_bytes = std::uint64_t{1} << 30;

// A data set of one file, and what of it matters.
struct Part {
    fs::path path;
    std::string name;
    h5::Handle file, dataset;
    std::vector<hsize_t> size;
    ElementType type = ElementType::u8;
    std::uint64_t rows_at_once = 1;

    std::uint64_t row_bytes() const {
        return std::accumulate(size.begin() + 1,
                               size.end(),
                               std::uint64_t{element_bytes(type)},
                               [](std::uint64_t bytes, hsize_t extent) { return bytes * extent; });
    }
};

Error malformed(const Part& part, const std::string& why) {
    return Error("E214",
                 fmt::format("'{}' of '{}' cannot be packed", part.name, part.path.string()),
                 why,
                 "name a data set of numbers whose first dimension is the sample");
}

h5::Handle open_file(const fs::path& path) {
    InputFile{path};  // what the system says about it, before the library sees it
    const h5::Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(access.id(), false, true);
#endif
    return {h5::checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), "E205", "open", path),
            H5Fclose};
}

// A file may name any other that this user can read.
void check_is_within_file(const Part& part) {
    const h5::Handle properties(H5Dget_create_plist(part.dataset.id()), H5Pclose);
    if (H5Pget_layout(properties.id()) == H5D_VIRTUAL || H5Pget_external_count(properties.id()) > 0)
        throw malformed(part, "its values lie in other files, which are not followed");
}

ElementType whole_type(std::size_t bytes, bool has_sign, const Part& part) {
    if (bytes == 1 && !has_sign) return ElementType::u8;
    if (bytes < 4 || (bytes == 4 && has_sign)) return ElementType::i32;
    if (bytes < 8 || (bytes == 8 && has_sign)) return ElementType::i64;
    throw malformed(part,
                    fmt::format("whole numbers of {} bits {} sign do not fit 64 bits with one",
                                8 * bytes,
                                has_sign ? "with" : "without"));
}

ElementType element_type(const Part& part) {
    const h5::Handle type(H5Dget_type(part.dataset.id()), H5Tclose);
    const std::size_t bytes = H5Tget_size(type.id());
    const H5T_class_t kind = H5Tget_class(type.id());
    if (kind == H5T_INTEGER) return whole_type(bytes, H5Tget_sign(type.id()) == H5T_SGN_2, part);
    if (kind == H5T_FLOAT && bytes <= 8) return bytes <= 4 ? ElementType::f32 : ElementType::f64;
    throw malformed(part,
                    "its elements are neither whole numbers nor floating ones of at most 64 bits");
}

void read_shape(Part& part) {
    const h5::Handle space(H5Dget_space(part.dataset.id()), H5Sclose);
    const int rank = H5Sget_simple_extent_ndims(space.id());
    if (rank < 1) throw malformed(part, "it is a single value");
    part.size.resize(static_cast<std::size_t>(rank));
    H5Sget_simple_extent_dims(space.id(), part.size.data(), nullptr);
    std::uint64_t bytes = element_bytes(part.type);
    for (std::size_t i = 1; i < part.size.size(); ++i) {
        if (part.size[i] == 0 || part.size[i] > most_read_bytes / bytes)
            throw malformed(part,
                            fmt::format("its sizes are {}: a sample must have 1 byte to {}",
                                        fmt::join(part.size, " x "),
                                        bytes_text(most_read_bytes)));
        bytes *= part.size[i];
    }
    if (part.size[0] == 0 || part.size[0] > (std::uint64_t{1} << 60) / bytes)
        throw malformed(part, fmt::format("it has {} samples", grouped(part.size[0])));
}

// Whole rows of chunks, so that each chunk is decoded once.
void choose_rows(Part& part) {
    const h5::Handle properties(H5Dget_create_plist(part.dataset.id()), H5Pclose);
    std::uint64_t step = 1;
    if (H5Pget_layout(properties.id()) == H5D_CHUNKED) {
        std::vector<hsize_t> chunk(part.size.size());
        H5Pget_chunk(properties.id(), static_cast<int>(chunk.size()), chunk.data());
        step = std::clamp<std::uint64_t>(chunk[0], 1, part.size[0]);
    }
    const std::uint64_t most = std::max<std::uint64_t>(most_read_bytes / part.row_bytes(), 1);
    const std::uint64_t usual = usual_read_bytes / part.row_bytes() / step * step;
    part.rows_at_once = std::min({std::max(usual, step), most, std::uint64_t{part.size[0]}});
}

Part open_part(const fs::path& path, const NamedInput& field) {
    Part part{path, field.place, open_file(path), {}, {}};
    const h5::Handle access = h5::access_within_file();
    part.dataset = h5::Handle(H5Dopen2(part.file.id(), field.place.c_str(), access.id()), H5Dclose);
    check(static_cast<bool>(part.dataset), [&] {
        return Error("E207",
                     fmt::format("'{}' has no data set '{}'", path.string(), field.place),
                     h5::last_reasons(),
                     fmt::format("'h5ls -r {}' shows what it has", path.string()));
    });
    check_is_within_file(part);
    part.type = element_type(part);
    read_shape(part);
    choose_rows(part);
    return part;
}

std::vector<std::int64_t> sample_shape(const Part& part) {
    return {part.size.begin() + 1, part.size.end()};
}

void check_like(const Part& part, const Part& first) {
    check(part.type == first.type && sample_shape(part) == sample_shape(first), [&] {
        return Error("E208",
                     fmt::format("'{}' of '{}' has samples of {} [{}]",
                                 part.name,
                                 part.path.string(),
                                 element_name(part.type),
                                 fmt::join(sample_shape(part), ", ")),
                     fmt::format("those of '{}' are {} [{}]",
                                 first.path.string(),
                                 element_name(first.type),
                                 fmt::join(sample_shape(first), ", ")),
                     "give files of one data set");
    });
}

// Copies what the library can read into the spool.
class Hdf5Import {
  public:
    Hdf5Import(const std::vector<fs::path>& files,
               const std::vector<NamedInput>& fields,
               const SourceOptions& options)
        : fields_(fields), options_(options) {
        parts_.resize(fields.size());
        allow_open_files(files.size() * fields.size());
        FileRequest request;
        for (const NamedInput& field : fields) request.datasets.push_back(field.place);
        for (const fs::path& path : files) {
            request.path = path;
            sandbox_.look(request);  // what a child does not survive is not opened here
            for (std::size_t f = 0; f < fields.size(); ++f) {
                parts_[f].push_back(open_part(path, fields[f]));
                check_like(parts_[f].back(), parts_[f].front());
                total_ += parts_[f].back().size[0] * parts_[f].back().row_bytes();
            }
            check_rows(path);
        }
    }

    std::unique_ptr<RowSource> run(ImageLayout layout) {
        std::vector<Field> fields;
        std::vector<Column> columns;
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            const Part& first = parts_[f].front();
            FieldPlan plan =
                plan_field(fields_[f].field, first.type, sample_shape(first), layout, first.path);
            Spool spool(options_.scratch);
            std::uint64_t rows = 0;
            for (const Part& part : parts_[f]) {
                copy(part, spool);
                rows += part.size[0];
            }
            const auto bytes = static_cast<std::size_t>(first.row_bytes());
            fields.push_back(std::move(plan.field));
            columns.push_back({{{spool.finish(), 0, rows, bytes}}, bytes, plan.transform});
        }
        return std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
    }

  private:
    void check_rows(const fs::path& path) const {
        std::vector<std::uint64_t> rows;
        std::vector<NamedInput> named = fields_;
        for (std::size_t f = 0; f < parts_.size(); ++f) {
            rows.push_back(parts_[f].back().size[0]);
            named[f].place = path.string() + ":" + fields_[f].place;
        }
        check_counts(named, rows);
    }

    void copy(const Part& part, Spool& spool) {
        std::vector<std::byte> rows(part.rows_at_once * part.row_bytes());
        for (std::uint64_t first = 0; first < part.size[0]; first += part.rows_at_once) {
            const std::uint64_t count =
                std::min<std::uint64_t>(part.rows_at_once, part.size[0] - first);
            const auto filled = std::span(rows).first(count * part.row_bytes());
            read_rows(part, first, count, filled);
            spool.append(filled);
            done_ += filled.size();
            if (options_.report) options_.report(done_, total_);
        }
    }

    static void read_rows(const Part& part,
                          std::uint64_t first,
                          std::uint64_t count,
                          std::span<std::byte> out) {
        std::vector<hsize_t> start(part.size.size(), 0), size = part.size;
        start[0] = first;
        size[0] = count;
        const h5::Handle there(H5Dget_space(part.dataset.id()), H5Sclose);
        const h5::Handle here(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr),
                              H5Sclose);
        h5::checked(H5Sselect_hyperslab(
                        there.id(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr),
                    "E213",
                    "read",
                    part.path);
        h5::checked(H5Dread(part.dataset.id(),
                            h5::type_of(part.type),
                            here.id(),
                            there.id(),
                            H5P_DEFAULT,
                            out.data()),
                    "E213",
                    "read",
                    part.path.string() + ":" + part.name);
    }

    Sandbox sandbox_;
    const std::vector<NamedInput>& fields_;
    const SourceOptions& options_;
    std::vector<std::vector<Part>> parts_;  // by field, then by file
    std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_hdf5(const std::vector<std::filesystem::path>& files,
                                     const std::vector<NamedInput>& fields,
                                     ImageLayout layout,
                                     const SourceOptions& options) {
    check_names("field", fields);
    expect(!files.empty() && !fields.empty(), "there are files and fields");
    const h5::QuietErrors quiet;
    return Hdf5Import(files, fields, options).run(layout);
}

}  // namespace lockstep
