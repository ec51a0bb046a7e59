// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "field_plan.hpp"
#include "format/labels.hpp"
#include "format/widening.hpp"
#include "hdf5/contents.hpp"
#include "hdf5/label_column.hpp"
#include "hdf5/row_layout.hpp"
#include "hdf5/sandbox.hpp"
#include "hdf5/shard_probe.hpp"
#include "hdf5_part.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<std::int64_t> sample_shape(const Part& part) {
    return {part.size.begin() + 1, part.size.end()};
}

void check_like(const Part& part, const Part& first) {
    const bool is_like = part.type == first.type && part.is_text == first.is_text &&
                         sample_shape(part) == sample_shape(first);
    check(is_like, [&] {
        return Error("E208",
                     fmt::format("'{}' of '{}' has samples of {} [{}]",
                                 part.name,
                                 part.path.string(),
                                 part.is_text ? "text" : element_name(part.type),
                                 fmt::join(sample_shape(part), ", ")),
                     fmt::format("those of '{}' are {} [{}]",
                                 first.path.string(),
                                 first.is_text ? "text" : element_name(first.type),
                                 fmt::join(sample_shape(first), ", ")),
                     "give files of one data set");
    });
}

// A field by its own layout, or by the one for all.
ImageLayout layout_of(const FieldMapping& field, ImageLayout usual) {
    if (field.layout == RowLayout::chw) return ImageLayout::chw;
    return field.layout == RowLayout::hwc ? ImageLayout::hwc : usual;
}

// Packing goes by names, which training knows fields by.
void check_name(const FieldMapping& field) {
    const bool is_label = is_label_name(field.name);
    const bool is_usual =
        is_label || field.name == "images" || field.name == "masks" || field.name == "tokens";
    const bool needs_label = field.layout == RowLayout::label || field.layout == RowLayout::one_hot;
    check(is_label || !needs_label, [&] {
        return Error("E235",
                     fmt::format("field '{}' is described as a label", field.name),
                     "in packed data the name of a field marks it as a label",
                     fmt::format("call it labels, or {}_labels", field.name));
    });
    check(!is_usual || field.layout != RowLayout::value, [&] {
        return Error("E235",
                     fmt::format("field '{}' is described as a plain value", field.name),
                     "in packed data the names images, labels, masks and tokens have a meaning",
                     "give it another name");
    });
}

std::vector<NamedInput> named_inputs(const std::vector<FieldMapping>& fields) {
    std::vector<NamedInput> inputs;
    for (const FieldMapping& field : fields) inputs.push_back({field.name, field.hdf5_path});
    return inputs;
}

// By value; "2" for a class that the enumeration does not name.
std::vector<std::string> names_of(const std::vector<EnumMember>& members) {
    std::vector<std::string> names;
    for (const EnumMember& member : members) {
        if (member.value < 0 || member.value >= max_classes) continue;
        const auto number = static_cast<std::size_t>(member.value);
        while (names.size() <= number) names.push_back(fmt::format("{}", names.size()));
        names[number] = member.name;
    }
    return names;
}

// Copies what the library can read, in its child process, into the spool.
class Hdf5Import {
  public:
    Hdf5Import(const std::vector<fs::path>& files,
               const AskedFiles& asked,
               const SourceOptions& options)
        : asked_(asked), fields_(asked.fields), options_(options) {
        parts_.resize(fields_.size());
        FileRequest request{.links = options.links};
        for (const FieldMapping& field : fields_) {
            check_name(field);
            request.datasets.push_back(field.hdf5_path);
        }
        for (const fs::path& path : files) {
            InputFile{path};  // the system's own error, before the library reads it
            check_is_whole_hdf5(path, 0);
            request.path = path;
            const FileFacts facts = sandbox_.look(request);
            for (std::size_t f = 0; f < fields_.size(); ++f) {
                parts_[f].push_back(part(facts.datasets[f], path, f));
                warn_of_unasked(facts.datasets[f], f);
                check_like(parts_[f].back(), parts_[f].front());
                if (path == files[0])
                    check_dimensions(
                        asked, f, path, parts_[f][0].size[0], sample_shape(parts_[f][0]));
                check_pack_memory(parts_[f].back(), options.memory_bytes);
                total_ += parts_[f].back().size[0] * parts_[f].back().row_bytes();
            }
            check_rows(path);
        }
    }

    std::unique_ptr<RowSource> run() {
        for (std::size_t f = 0; f < fields_.size(); ++f)
            if (parts_[f].front().is_text || fields_[f].layout == RowLayout::one_hot)
                add_made_labels(f);
            else
                add_rows(f, layout_of(fields_[f], asked_.layout));
        return std::make_unique<ColumnSource>(std::move(made_), std::move(columns_));
    }

    void read_first_rows() {
        for (std::size_t f = 0; f < fields_.size(); ++f) {
            const Part& part = parts_[f].front();
            if (part.is_text) continue;
            plan(f, layout_of(fields_[f], asked_.layout));
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
            else if (part_.unpacking)
                read_and_unpack(first, count, rows);
            else
                import_.read_in_child(part_, first, count, part_.type, rows);
        }

      private:
        void read_and_unpack(std::uint64_t first, std::uint64_t count, std::span<std::byte> rows) {
            stored_.resize(count * part_.row_elements() * element_bytes(part_.read_as));
            import_.read_in_child(part_, first, count, part_.read_as, stored_);
            const bool is_unpacked = part_.unpacking->undo(stored_, rows);
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

    Part part(const DatasetFacts& facts, const fs::path& path, std::size_t field) const {
        check_is_there(facts, path, asked_, field);
        try {
            return part_of(facts, path, fields_[field], options_.links);
        } catch (const NotPacked& found) {
            const Error& error = found.error;
            throw Error(error.code(),
                        error.what(),
                        error.why(),
                        way_past(found.obstacle, asked_, field, facts));
        }
    }

    // Once, whichever file says so.
    void warn_of_unasked(const DatasetFacts& facts, std::size_t field) {
        const std::string warning = unasked_unpacking(facts, fields_[field]);
        if (!warning.empty() && warned_.insert(field).second) once(Level::warn, "{}", warning);
    }

    void check_rows(const fs::path& path) const {
        const std::vector<std::uint64_t>& first = parts_[0].back().size;
        for (std::size_t f = 1; f < parts_.size(); ++f)
            check(parts_[f].back().size[0] == first[0],
                  [&] { return other_rows(path, asked_, f, first, parts_[f].back().size); });
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

    FieldPlan plan(std::size_t f, ImageLayout layout) const {
        const Part& part = parts_[f].front();
        FieldPlan planned =
            plan_field(fields_[f].name, part.type, sample_shape(part), layout, part.path, ways(f));
        if (fields_[f].layout == RowLayout::unstated || is_label_name(fields_[f].name))
            return planned;
        if (fields_[f].name == "images") return planned;  // they are CHW already
        planned.field.layout = layout_text(fields_[f].layout);
        return planned;
    }

    void add_rows(std::size_t f, ImageLayout layout) {
        FieldPlan planned = plan(f, layout);
        Spool spool(options_.scratch);
        for (const Part& part : parts_[f])
            for_rows(part,
                     [&](std::span<const std::byte> rows, std::uint64_t) { spool.append(rows); });
        if (is_label_name(planned.field.name) && planned.field.shape.empty())
            planned.field.class_names = names_of(parts_[f].front().members);
        add(std::move(planned), spool, parts_[f].front().row_bytes());
    }

    // Names of classes and one-hot rows become the numbers of classes.
    void add_made_labels(std::size_t f) {
        const LabelColumn column = parts_[f].front().is_text ? texts_of(f) : hot_rows_of(f);
        Field field{.name = fields_[f].name, .type = ElementType::i64};
        field.class_names = column.names;
        Spool spool(options_.scratch);
        spool.append(column.bytes());
        add({std::move(field), widening(column.type())}, spool, element_bytes(column.type()));
    }

    LabelColumn texts_of(std::size_t f) {
        TextLabels labels;
        for (const Part& part : parts_[f]) {
            labels.add(sandbox_, {part.path, part.name, part.size[0], options_.links});
            report(part.size[0] * part.row_bytes());
        }
        return labels.finish();
    }

    LabelColumn hot_rows_of(std::size_t f) {
        const Part& shape = parts_[f].front();
        HotLabels labels(shape.size[1]);
        for (const Part& part : parts_[f])
            for_rows(part, [&](std::span<const std::byte> rows, std::uint64_t first) {
                labels.add(part.type, rows, {part.path, part.name, part.size[0]}, first);
            });
        return labels.finish();
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
        try {
            sandbox_.read({.path = part.path,
                           .dataset = part.name,
                           .type = type,
                           .first = first,
                           .rows = count,
                           .bytes = rows.size(),
                           .links = options_.links},
                          rows,
                          part.chunks_of_row * static_cast<double>(count));
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
    std::vector<Field> made_;
    std::vector<Column> columns_;
    std::set<std::size_t> warned_;  // fields
    std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_hdf5(const std::vector<std::filesystem::path>& files,
                                     const std::vector<FieldMapping>& fields,
                                     ImageLayout layout,
                                     const SourceOptions& options) {
    check_names("field", named_inputs(fields));
    expect(!files.empty() && !fields.empty(), "there are files and fields");
    check_has_images(named_inputs(fields), layout);
    const AskedFiles asked{files, fields, layout, options.links};
    return Hdf5Import(files, asked, options).run();
}

void check_packs_hdf5(const std::filesystem::path& file, const AskedFiles& asked) {
    check_names("field", named_inputs(asked.fields));
    const SourceOptions options{.links = asked.links};
    Hdf5Import({file}, asked, options).read_first_rows();
}

}  // namespace lockstep
