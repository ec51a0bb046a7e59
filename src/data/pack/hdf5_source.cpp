// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "format/labels.hpp"
#include "format/widening.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/row_layout.hpp"
#include "hdf5/sandbox.hpp"
#include "hdf5/shard_probe.hpp"
#include "hdf5_part.hpp"
#include "image_rows.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Packing goes by names, which training knows fields by.
void check_name(const FieldMapping& field) {
    const bool is_label = is_label_name(field.name);
    const bool is_usual =
        is_label || field.name == "images" || field.name == "masks" || field.name == "tokens";
    const bool needs_label = field.layout == RowLayout::label || field.layout == RowLayout::one_hot;
    check(is_label || !needs_label,
          "E235",
          fmt::format("field '{}' is described as a label", field.name),
          "in packed data the name of a field marks it as a label",
          fmt::format("call it labels, or {}_labels", field.name));
    check(!is_usual || field.layout != RowLayout::value,
          "E235",
          fmt::format("field '{}' is described as a plain value", field.name),
          "in packed data the names images, labels, masks and tokens have a meaning",
          "give it another name");
}

std::vector<NamedInput> named_inputs(const std::vector<FieldMapping>& fields) {
    std::vector<NamedInput> inputs;
    for (const FieldMapping& field : fields) inputs.push_back({field.name, field.hdf5_path});
    return inputs;
}

// All of a data set is one row.
void become_sample(DatasetFacts& facts) {
    if (facts.layout == StorageLayout::missing) return;
    facts.size.insert(facts.size.begin(), 1);
    if (!facts.chunk.empty()) facts.chunk.insert(facts.chunk.begin(), 1);
}

// Copies what the library can read, in its child process, into the spool.
class Hdf5Import {
  public:
    Hdf5Import(const std::vector<fs::path>& files,
               const AskedFiles& asked,
               const SourceOptions& options)
        : asked_(asked), fields_(asked.fields), options_(options) {
        parts_.resize(fields_.size());
        named_.resize(fields_.size());
        std::map<fs::path, std::vector<std::size_t>> apart;  // fields by files of their own
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            check_name(fields_[f]);
            apart[fields_[f].file].push_back(f);
        }
        for (const auto& [own, fields] : apart)
            look_at(own.empty() ? files : foreign_files(own), fields);
        for (std::size_t f = 1; f < fields_.size(); ++f) check_samples(f);
    }

    std::unique_ptr<RowSource> run() {
        for (std::size_t f = 0; f < fields_.size(); ++f)
            if (form_of_field(f).is_text || fields_[f].layout == RowLayout::one_hot)
                add_made_labels(f);
            else if (form_of_field(f).is_encoded)
                add_encoded(f);
            else
                add_rows(f);
        return std::make_unique<ColumnSource>(std::move(made_), std::move(columns_));
    }

    void read_first_rows() {
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            const Part& part = parts_[f].front();
            if (part.form.is_text) continue;
            if (part.form.is_encoded) {
                decode(part, 0, 1, [](const Image&, const std::string&) {});
                continue;
            }
            plan(f);
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
            else if (part_.form.unpacking)
                read_and_unpack(first, count, rows);
            else
                import_.read_in_child(part_, first, count, part_.form.type, rows);
        }

      private:
        void read_and_unpack(std::uint64_t first, std::uint64_t count, std::span<std::byte> rows) {
            stored_.resize(count * part_.row_elements() * element_bytes(part_.read_as));
            import_.read_in_child(part_, first, count, part_.read_as, stored_);
            const bool is_unpacked = part_.form.unpacking->undo(stored_, rows);
            expect(is_unpacked, "there are as many numbers as were asked for");
            const std::optional<std::uint64_t> missing = first_missing(rows);
            if (!missing) return;
            const std::uint64_t row = first + *missing / part_.row_elements();
            throw missing_value({.name = part_.field, .source = part_.name}, part_.path, row, row);
        }

        Hdf5Import& import_;
        const Part& part_;
        std::vector<std::byte> stored_;
        std::optional<ShardFiles> files_;
        std::optional<BlockReader> reader_;
    };

    // Fields that each of the files has.
    void look_at(const std::vector<fs::path>& files, const std::vector<std::size_t>& fields) {
        FileRequest request{.links = options_.links};
        std::vector<FieldMapping> mappings;
        for (const std::size_t f : fields) {
            mappings.push_back(fields_[f]);
            request.datasets.push_back(fields_[f].hdf5_path);
        }
        for (const fs::path& path : files) {
            InputFile{path};  // the system's own error, before the library reads it
            check_is_whole_hdf5(path, 0);
            request.path = path;
            FileFacts facts = sandbox_.look(request);
            if (options_.is_sample_a_file)
                std::ranges::for_each(facts.datasets, become_sample);
            else
                settle_columns(
                    facts.datasets, mappings, fields.size() < fields_.size() && files.size() == 1);
            for (std::size_t i = 0; i < fields.size(); ++i)
                add_part(facts.datasets[i], path, fields[i]);
            check_rows(path, fields);
        }
    }

    void add_part(const DatasetFacts& facts, const fs::path& path, std::size_t f) {
        parts_[f].push_back(part(facts, path, f));
        warn_of_unasked(facts, f);
        const Part& added = parts_[f].back();
        const Part& first = parts_[f].front();
        check_like(added.form, first.form, asked_, f, path, first.path);
        if (is_label_name(fields_[f].name)) named_[f].add(facts, fields_[f], path);
        if (parts_[f].size() == 1 && !added.form.is_encoded)
            check_dimensions(asked_, f, path, added.size[0], added.form.shape);
        check_pack_memory(added, options_.memory_bytes);
        total_ += added.size[0] * added.row_bytes();
    }

    Part part(const DatasetFacts& facts, const fs::path& path, std::size_t field) const {
        if (is_absent(facts)) throw no_such_dataset(path, asked_, field);
        try {
            return part_of(facts, path, fields_[field], options_.links);
        } catch (const Unfit& found) {
            throw Error(
                found.code.empty() ? "E214" : found.code,
                fmt::format(
                    "'{}' of '{}' cannot be packed", fields_[field].hdf5_path, path.string()),
                found.why,
                way_past(found.obstacle, asked_, field, facts));
        }
    }

    const RowForm& form_of_field(std::size_t f) const { return parts_[f].front().form; }

    // Once, whichever file says so.
    void warn_of_unasked(const DatasetFacts& facts, std::size_t field) {
        const std::string warning = unasked_unpacking(facts, fields_[field]);
        if (!warning.empty() && warned_.insert(field).second) once(Level::warn, "{}", warning);
    }

    void check_rows(const fs::path& path, const std::vector<std::size_t>& fields) const {
        const std::vector<std::uint64_t>& first = parts_[fields[0]].back().size;
        for (const std::size_t f : fields)
            check(parts_[f].back().size[0] == first[0], [&] {
                return other_rows(path, asked_, fields[0], first, f, parts_[f].back().size);
            });
    }

    // Of all files together, which differ between fields.
    void check_samples(std::size_t f) const {
        const auto rows_of = [&](std::size_t field) {
            RowsRequest all{.path = parts_[field][0].path, .dataset = fields_[field].hdf5_path};
            for (const Part& part : parts_[field]) all.rows += part.size[0];
            return all;
        };
        check(rows_of(f).rows == rows_of(0).rows,
              [&] { return other_samples(rows_of(0), rows_of(f)); });
    }

    FieldWays ways(std::size_t f) const {
        return {
            .given =
                [this, f](const std::string& name, bool is_label) {
                    return fmt::format(
                        "--field {}={}{}", name, fields_[f].hdf5_path, is_label ? ":label" : "");
                },
            .rewritten =
                [this, f](const std::string& numbers) {
                    return rewrite_command(asked_, f, numbers);
                }};
    }

    FieldPlan plan(std::size_t f) const {
        const FieldMapping& mapping = fields_[f];
        const Part& part = parts_[f].front();
        const ImageLayout layout = mapping.layout == RowLayout::chw   ? ImageLayout::chw
                                   : mapping.layout == RowLayout::hwc ? ImageLayout::hwc
                                                                      : asked_.layout;
        FieldPlan planned =
            plan_field(mapping.name, part.form.type, part.form.shape, layout, part.path, ways(f));
        // Images are CHW by now, and masks may be HW.
        const bool is_as_stored = planned.field.shape.size() == part.form.shape.size();
        if (mapping.layout != RowLayout::unstated && mapping.name != "images" &&
            !is_label_name(mapping.name) && is_as_stored)
            planned.field.layout = layout_text(mapping.layout);
        return planned;
    }

    void add_rows(std::size_t f) {
        FieldPlan planned = plan(f);
        Spool spool;
        for (const Part& part : parts_[f])
            for_rows(part,
                     [&](std::span<const std::byte> rows, std::uint64_t) { spool.append(rows); });
        if (is_label_name(planned.field.name) && planned.field.shape.empty())
            planned.field.class_names = named_[f].names();
        add(std::move(planned), spool, parts_[f].front().row_bytes());
    }

    // Names of classes and one-hot rows become the numbers of classes.
    void add_made_labels(std::size_t f) {
        const LabelColumn column = form_of_field(f).is_text ? texts_of(f) : hot_rows_of(f);
        Field field{.name = fields_[f].name, .type = ElementType::i64};
        field.class_names = column.names;
        Spool spool;
        spool.append(column.bytes());
        add({std::move(field), widening(column.type())}, spool, element_bytes(column.type()));
    }

    RowsRequest request(const Part& part, std::uint64_t first, std::uint64_t rows) const {
        return {.path = part.path,
                .dataset = part.name,
                .first = first,
                .rows = rows,
                .links = options_.links};
    }

    // Rows of lists of bytes, each the content of an image's file.
    template <class Take>
    void decode(const Part& part, std::uint64_t first, std::uint64_t rows, Take&& take) {
        const Lists contents = sandbox_.read_lists(request(part, first, rows));
        for (std::uint64_t row = 0; row < rows; ++row) {
            const std::string place = fmt::format(
                "in row {} of '{}' in '{}'", grouped(first + row), part.name, part.path.string());
            take(decoded_image(bytes_of(contents[row]),
                               place,
                               "leave that row out, or write it anew as a PNG or JPEG"),
                 place);
        }
    }

    void add_encoded(std::size_t f) {
        constexpr std::uint64_t most_at_once = 16;
        std::optional<ImageRows> images;
        Field field{.name = fields_[f].name, .layout = "CHW"};
        std::vector<std::byte> row;
        Spool spool;
        const auto take = [&](Image image, const std::string& place) {
            if (!images) {
                images.emplace(options_.images, image, place);
                field.shape = images->shape();
                row.resize(field.bytes_per_sample());
            }
            images->write(std::move(image), place, row);
            spool.append(row);
        };
        for (const Part& part : parts_[f])
            for (std::uint64_t first = 0; first < part.size[0]; first += most_at_once) {
                const std::uint64_t rows = std::min(most_at_once, part.size[0] - first);
                decode(part, first, rows, take);
                report(rows * part.row_bytes());
            }
        add({std::move(field), {}}, spool, row.size());
    }

    LabelColumn texts_of(std::size_t f) {
        TextLabels labels;
        for (const Part& part : parts_[f]) {
            labels.add(sandbox_, request(part, 0, part.size[0]));
            report(part.size[0] * part.row_bytes());
        }
        return labels.finish();
    }

    LabelColumn hot_rows_of(std::size_t f) {
        LabelColumn column{.counts = std::vector<std::uint64_t>(parts_[f].front().size[1])};
        for (const Part& part : parts_[f])
            for_rows(part, [&](std::span<const std::byte> rows, std::uint64_t first) {
                add_hot_rows(column, part.form.type, rows, {part.path, part.name}, first);
            });
        return column;
    }

    void add(FieldPlan planned, Spool& spool, std::size_t bytes) {
        std::uint64_t rows = spool.bytes() / bytes;
        made_.push_back(std::move(planned.field));
        columns_.push_back({{{spool.finish(), 0, rows, bytes}}, bytes, planned.transform});
    }

    template <class Action>
    void for_rows(const Part& part, Action&& act) {
        std::vector<std::byte> rows(part.rows_at_once * part.row_bytes());
        RowReader reader(*this, part);
        for (std::uint64_t first = 0; first < part.size[0]; first += part.rows_at_once) {
            const std::uint64_t count =
                std::min<std::uint64_t>(part.rows_at_once, part.size[0] - first);
            const auto filled = std::span(rows).first(count * part.row_bytes());
            reader.read(first, filled);
            act(filled, first);
            report(filled.size());
        }
    }

    void report(std::uint64_t bytes) {
        done_ += bytes;
        if (options_.report) options_.report(done_, total_);
    }

    void read_in_child(const Part& part,
                       std::uint64_t first,
                       std::uint64_t count,
                       ElementType type,
                       std::span<std::byte> rows) {
        const bool is_whole = options_.is_sample_a_file && part.size.size() > 1;
        RowsRequest wanted = request(part, first, is_whole ? part.size[1] : count);
        wanted.type = type;
        wanted.bytes = rows.size();
        try {
            sandbox_.read(wanted, rows, part.chunks_of_row * static_cast<double>(count));
        } catch (const Error& error) {
            if (part.plugin == 0 || kind_of(error) != ErrorKind::data_damaged) throw;
            throw Error(
                error.code(), error.what(), error.why(), way_past_filter(part.plugin, asked_));
        }
    }

    Sandbox sandbox_;
    const AskedFiles& asked_;
    const std::vector<FieldMapping>& fields_;
    const SourceOptions& options_;
    std::vector<std::vector<Part>> parts_;  // by field, then by file
    std::vector<NamedClasses> named_;       // by field
    std::vector<Field> made_;
    std::vector<Column> columns_;
    std::set<std::size_t> warned_;  // fields
    std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_hdf5(const std::vector<fs::path>& files,
                                     const std::vector<FieldMapping>& fields,
                                     ImageLayout layout,
                                     const SourceOptions& options) {
    check_inputs("field", named_inputs(fields), layout);
    expect(!files.empty() && !fields.empty(), "there are files and fields");
    const AskedFiles asked{files, fields, layout, options.links, options.is_sample_a_file};
    return Hdf5Import(files, asked, options).run();
}

void check_packs_hdf5(const fs::path& file, const AskedFiles& asked) {
    check_inputs("field", named_inputs(asked.fields));
    const SourceOptions options{.links = asked.links};
    Hdf5Import({file}, asked, options).read_first_rows();
}

}  // namespace lockstep
