// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "field_plan.hpp"
#include "format/labels.hpp"
#include "hdf5/sandbox.hpp"
#include "hdf5/stored_blocks.hpp"
#include "opening/contents.hpp"
#include "spool.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_read_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t most_read_bytes = std::uint64_t{1} << 30;

// A data set of one file, and what of it matters.
struct Part {
    fs::path path;
    std::string name;
    std::vector<std::uint64_t> size;
    ElementType type = ElementType::u8;
    std::uint64_t rows_at_once = 1;
    double chunks_of_row = 0;  // that a row lies in; small where a chunk has many rows
    std::shared_ptr<const DatasetIndex> blocks;  ///< null: libhdf5 reads it
    std::string plugin;                          ///< which filter that needs, if it is not its own

    std::uint64_t row_bytes() const {
        return std::accumulate(
            size.begin() + 1,
            size.end(),
            std::uint64_t{element_bytes(type)},
            [](std::uint64_t bytes, std::uint64_t extent) { return bytes * extent; });
    }
};

Error malformed(const Part& part, const std::string& why) {
    return Error("E214",
                 fmt::format("'{}' of '{}' cannot be packed", part.name, part.path.string()),
                 why,
                 "name a data set of numbers whose first dimension is the sample");
}

Error in_other_files(const Part& part) {
    return Error("E214",
                 fmt::format("'{}' of '{}' cannot be packed", part.name, part.path.string()),
                 "its values lie in other files: it is virtual, or stored in them",
                 "--follow-links reads them, too, if you trust what the file names");
}

// What the library makes of u64 beyond i64, the largest i64 or a negative one, is no class.
ElementType whole_type(const NumberFacts& number, const Part& part, const std::string& field) {
    const bool has_sign = number.has_sign;
    if (number.bytes == 1 && !has_sign) return ElementType::u8;
    if (number.bytes < 4 || (number.bytes == 4 && has_sign)) return ElementType::i32;
    if (number.bytes < 8 || (number.bytes == 8 && (has_sign || is_label_name(field))))
        return ElementType::i64;
    throw malformed(part,
                    fmt::format("whole numbers of {} bits {} sign do not fit 64 bits with one",
                                8 * number.bytes,
                                has_sign ? "with" : "without"));
}

ElementType element_type(const DatasetFacts& facts, const Part& part, const std::string& field) {
    if (facts.type) return *facts.type;
    if (facts.number && facts.number->is_whole) return whole_type(*facts.number, part, field);
    if (facts.number && facts.number->bytes <= 8)
        return facts.number->bytes <= 4 ? ElementType::f32 : ElementType::f64;
    throw malformed(part,
                    "its elements are neither whole numbers nor floating ones of at most 64 bits");
}

// Before anything is computed from sizes that a file may have made up.
void check_shape(const Part& part) {
    if (part.size.empty()) throw malformed(part, "it is a single value");
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

// The part as a data set of its own that is read as a stream reads it, by the same decoders;
// nullptr if libhdf5 has to.
std::shared_ptr<const DatasetIndex> blocks_of_part(const DatasetFacts& facts,
                                                   const Part& part,
                                                   const std::string& field) {
    const Widening widening = widening_of(facts);
    const ElementType read_as = widening.is_known() ? widening.type() : part.type;
    if ((!facts.type && !widening.is_known()) || read_as != part.type) return nullptr;
    BlockForms forms;
    const std::uint64_t bytes = fs::file_size(part.path), samples = part.size[0];
    const std::uint64_t rows = std::max<std::uint64_t>(usual_read_bytes / part.row_bytes(), 1);
    FoundBlocks found =
        lockstep::blocks_of(facts,
                            {.samples = samples,
                             .row_bytes = part.row_bytes(),
                             .file_bytes = bytes,
                             .contiguous_rows = static_cast<std::uint32_t>(std::min(rows, samples)),
                             .widening = widening},
                            forms);
    if (found.trouble != BlockTrouble::none) return nullptr;
    Manifest manifest{.kind = ManifestKind::foreign,
                      .name = field,
                      .row_order = "source",
                      .codec = Codec::filters,
                      .samples = samples,
                      .block_rows = 1};
    manifest.fields = {{.name = field, .type = part.type}};
    manifest.fields[0].shape.assign(part.size.begin() + 1, part.size.end());
    const fs::path file = fs::absolute(part.path);
    manifest.shards = {{.name = file.filename().string(), .bytes = bytes, .samples = samples}};
    return std::make_shared<const DatasetIndex>(DatasetIndex::of_blocks(file.parent_path(),
                                                                        manifest_text(manifest),
                                                                        {std::move(found.blocks)},
                                                                        std::move(forms),
                                                                        manifest.kind));
}

// Whole rows of chunks, so that each chunk is decoded once.
std::uint64_t rows_at_once(const DatasetFacts& facts, const Part& part) {
    const std::uint64_t samples = part.size[0];
    const std::uint64_t step =
        facts.chunk.empty() ? 1 : std::clamp<std::uint64_t>(facts.chunk[0], 1, samples);
    const std::uint64_t most = std::max<std::uint64_t>(most_read_bytes / part.row_bytes(), 1);
    const std::uint64_t usual = usual_read_bytes / part.row_bytes() / step * step;
    return std::min({std::max(usual, step), most, samples});
}

// Of sizes that a file may have made up: no whole number holds all of these products.
double chunks_of_row(const DatasetFacts& facts) {
    if (facts.chunk.size() != facts.size.size() || facts.chunk.empty()) return 0;
    double chunks = 1 / static_cast<double>(std::max<std::uint64_t>(facts.chunk[0], 1));
    for (std::size_t i = 1; i < facts.chunk.size(); ++i)
        chunks *= std::ceil(static_cast<double>(facts.size[i]) /
                            static_cast<double>(std::max<std::uint64_t>(facts.chunk[i], 1)));
    return chunks;
}

// The filter that libhdf5 gets from a plug-in only.
std::string plugin_of(const DatasetFacts& facts) {
    constexpr std::uint64_t most_own = 255;
    const auto found = std::ranges::find_if(
        facts.filters, [](const FilterFacts& filter) { return filter.kind > most_own; });
    return found == facts.filters.end() ? "" : filter_name(found->kind);
}

Part part_of(const DatasetFacts& facts,
             const fs::path& path,
             const NamedInput& field,
             Links links) {
    Part part{path, field.place, facts.size};
    check(facts.layout != StorageLayout::missing, [&] {
        if (facts.chunks.fault.empty()) return no_such_dataset(path, field.place, field.field);
        return Error(
            "E207",
            fmt::format("cannot open '{}' of '{}'", field.place, path.string()),
            printable(facts.chunks.fault),
            links == Links::refused
                ? "it is damaged, needs a newer HDF5 library, or leads into another file: then "
                  "--follow-links"
                : "it is damaged, or needs a newer HDF5 library");
    });
    if (facts.layout == StorageLayout::elsewhere && links == Links::refused)
        throw in_other_files(part);
    part.type = element_type(facts, part, field.field);
    check_shape(part);
    part.rows_at_once = rows_at_once(facts, part);
    part.chunks_of_row = chunks_of_row(facts);
    part.blocks = blocks_of_part(facts, part, field.field);
    part.plugin = plugin_of(facts);
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

// Copies what the library can read, in its child process, into the spool.
class Hdf5Import {
  public:
    Hdf5Import(const std::vector<fs::path>& files,
               const std::vector<NamedInput>& fields,
               const SourceOptions& options)
        : fields_(fields), options_(options) {
        parts_.resize(fields.size());
        FileRequest request{.links = options.links};
        for (const NamedInput& field : fields) request.datasets.push_back(field.place);
        for (const fs::path& path : files) {
            InputFile{path};  // what the system says about it, before the library sees it
            request.path = path;
            const FileFacts facts = sandbox_.look(request);
            for (std::size_t f = 0; f < fields.size(); ++f) {
                parts_[f].push_back(part_of(facts.datasets[f], path, fields[f], options.links));
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

    void read_first_rows(ImageLayout layout) {
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            const Part& part = parts_[f].front();
            plan_field(fields_[f].field, part.type, sample_shape(part), layout, part.path);
            std::vector<std::byte> row(part.row_bytes());
            RowReader(*this, part).read(0, row);
        }
    }

  private:
    /// Reads rows of `part`, which outlives it.
    class RowReader {
      public:
        RowReader(Hdf5Import& import, const Part& part) : import_(import), part_(part) {
            if (part.blocks) reader_.emplace(files_.emplace(part.blocks));
        }
        void read(std::uint64_t first, std::span<std::byte> rows) {
            const std::uint64_t count = rows.size() / part_.row_bytes();
            if (reader_)
                reader_->read_rows(0, first, count, rows);
            else
                import_.read_in_child(part_, first, count, rows);
        }

      private:
        Hdf5Import& import_;
        const Part& part_;
        std::optional<ShardFiles> files_;
        std::optional<BlockReader> reader_;
    };

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
        RowReader reader(*this, part);
        for (std::uint64_t first = 0; first < part.size[0]; first += part.rows_at_once) {
            const std::uint64_t count =
                std::min<std::uint64_t>(part.rows_at_once, part.size[0] - first);
            const auto filled = std::span(rows).first(count * part.row_bytes());
            reader.read(first, filled);
            spool.append(filled);
            done_ += filled.size();
            if (options_.report) options_.report(done_, total_);
        }
    }

    void read_in_child(const Part& part,
                       std::uint64_t first,
                       std::uint64_t count,
                       std::span<std::byte> rows) {
        try {
            sandbox_.read({.path = part.path,
                           .dataset = part.name,
                           .type = part.type,
                           .first = first,
                           .rows = count,
                           .bytes = rows.size(),
                           .links = options_.links},
                          rows,
                          part.chunks_of_row * static_cast<double>(count));
        } catch (const Error& error) {
            if (part.plugin.empty() || kind_of(error) != ErrorKind::data_damaged) throw;
            throw Error(error.code(), error.what(), error.why(), plugin_advice(part.plugin));
        }
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
    return Hdf5Import(files, fields, options).run(layout);
}

void check_packs_hdf5(const std::filesystem::path& file,
                      const std::vector<NamedInput>& fields,
                      ImageLayout layout) {
    check_names("field", fields);
    const SourceOptions options;
    Hdf5Import({file}, fields, options).read_first_rows(layout);
}

}  // namespace lockstep
