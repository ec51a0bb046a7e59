// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "format/labels.hpp"
#include "format/widening.hpp"
#include "hdf5/contents.hpp"
#include "npy_header.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::uint64_t longest_npy_header = 1 << 20, most_elements = std::uint64_t{1} << 48;

struct NpyType {
    std::string_view descr;
    ElementType type;
};
constexpr std::array<NpyType, 5> types{{{"|u1", ElementType::u8},
                                        {"<i4", ElementType::i32},
                                        {"<i8", ElementType::i64},
                                        {"<f4", ElementType::f32},
                                        {"<f8", ElementType::f64}}};

Error malformed_npy(const fs::path& path, const std::string& why, const std::string& fix = "") {
    return malformed_input(path, "an NPY file that can be packed", why, fix);
}

// How NumPy makes elements of `kind` numbers; "" where it does not without being asked what for.
std::string way_to_numbers(char kind, const fs::path& path) {
    const auto way = [&](const char* begin, const char* numbers) {
        return fmt::format("{}: {}", begin, rewrite_npy_command(path, numbers));
    };
    if (kind == 'U' || kind == 'S')
        return way("number the texts, as classes sort", "n.unique(x,return_inverse=True)[1]");
    if (kind == 'O')
        return "if you trust the file, whose objects Python unpickles, number their texts, as "
               "classes sort; write x.astype(float) there if they are numbers: " +
               rewrite_npy_command(
                   path, "n.unique(x.astype(str),return_inverse=True)[1]", ",allow_pickle=True");
    if (kind == 'c') return way("make two numbers of each", "n.stack([x.real,x.imag],1)");
    if (kind == 'm' || kind == 'M') return way("count them", "x.astype(\"i8\")");
    return kind == 'f' ? way("make them shorter", "x.astype(\"f8\")") : "";
}

// By what numpy writes: an order, a kind and bytes, as ">u2".
NpyHeader header_of(const NpyLayout& layout, const fs::path& path) {
    NpyHeader header{layout};
    const std::string_view descr = layout.descr;
    const auto known = std::ranges::find(types, descr, &NpyType::descr);
    if (known != types.end()) {
        header.type = known->type;
        return header;
    }
    if (descr == "|b1" || descr == "<u1" || descr == ">u1") return header;
    const char kind = descr.size() > 1 ? descr[1] : ' ';
    const auto bytes = parse_integer(descr.size() > 2 ? descr.substr(2) : "");
    if (bytes && (kind == 'i' || kind == 'u' || kind == 'f'))
        header.widening = Widening::of({.bytes = static_cast<std::size_t>(*bytes),
                                        .is_whole = kind != 'f',
                                        .has_sign = kind != 'u',
                                        .is_big_endian = descr[0] == '>'});
    if (!header.widening.is_known())
        throw malformed_npy(
            path,
            fmt::format("its type is '{}'; whole numbers of 8 to 64 bits, floats of 16, 32 and 64 "
                        "and truth values can be packed",
                        printable(descr)),
            way_to_numbers(kind, path));
    header.type = header.widening.type();
    return header;
}

// The Python literal of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
  public:
    HeaderParser(std::string_view text, const fs::path& path) : text_(text), path_(path) {}

    NpyLayout parse() {
        parse_list('{', '}', [&] {
            const std::string key = quoted();
            take(':');
            parse_value(key);
        });
        if (peek() != '\0' || at_ < text_.size() || keys_.size() != 3)
            throw nonsense("descr, fortran_order and shape are needed, and nothing else");
        return layout_;
    }

  private:
    void parse_value(const std::string& key) {
        const bool is_new = keys_.insert(key).second;
        if (is_new && key == "descr") {
            if (peek() == '[')
                throw malformed_npy(
                    path_,
                    "its elements are structures",
                    "save one member, whose name stands for MEMBER, or more of them, each by "
                    "itself: " +
                        rewrite_npy_command(path_, "x[\"MEMBER\"]"));
            layout_.descr = quoted();
        } else if (is_new && key == "fortran_order") {
            const std::string value = word();
            if (value == "True")
                throw malformed_npy(
                    path_,
                    "it is in Fortran order, in which samples are not together",
                    "save it in C order: " + rewrite_npy_command(path_, "n.ascontiguousarray(x)"));
            if (value != "False") throw nonsense("fortran_order is neither True nor False");
        } else if (is_new && key == "shape") {
            parse_shape();
        } else {
            throw nonsense(fmt::format("unexpected '{}'", key.substr(0, 40)));
        }
    }
    void parse_shape() {
        std::uint64_t total = 1;
        parse_list('(', ')', [&] {
            const std::uint64_t size = number();
            if (size == 0 || size > most_elements / total)
                throw malformed_npy(path_, "its shape has no or too many elements");
            total *= size;
            layout_.shape.push_back(size);
            if (layout_.shape.size() > 32) throw nonsense("more than 32 dimensions");
        });
    }

    template <class Item>
    void parse_list(char open, char close, Item&& parse_item) {
        take(open);
        while (!follows(close)) {
            parse_item();
            if (!follows(',')) return take(close);
        }
    }
    char peek() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0)
            ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool follows(char sign) {
        if (peek() != sign) return false;
        ++at_;
        return true;
    }
    void take(char sign) {
        if (!follows(sign)) throw nonsense(fmt::format("'{}' is missing", sign));
    }
    std::string quoted() {
        const char quote = peek();
        const auto end =
            quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
        if (end == std::string_view::npos) throw nonsense("a text is missing");
        const std::string value(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        return value;
    }
    std::string word() {
        peek();
        std::string value;
        while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_])) != 0)
            value += text_[at_++];
        return value;
    }
    std::uint64_t number() {
        peek();
        std::uint64_t value = 0;
        const char* end = text_.data() + text_.size();
        const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
        if (error != std::errc()) throw nonsense("a number is missing in its shape");
        at_ = static_cast<std::size_t>(stop - text_.data());
        return value;
    }
    Error nonsense(const std::string& why) const {
        return malformed_npy(path_, "its header makes no sense: " + why);
    }

    std::string_view text_;
    const fs::path& path_;
    std::size_t at_ = 0;
    NpyLayout layout_;
    std::set<std::string> keys_;
};

// u64 is for labels, which packing compares with their classes: i64 does not hold all its values.
void check_holds_all(const NpyHeader& header, const NamedInput& input) {
    check(!header.widening.is_known() || header.widening.holds_all() || is_label_name(input.field),
          [&] {
              return malformed_input(
                  input.place,
                  "an NPY file that can be packed",
                  "whole numbers of 64 bits without sign are read for labels only",
                  "make floats of them: " + rewrite_npy_command(input.place, "x.astype(\"f8\")"));
          });
}

FieldWays npy_ways(const NamedInput& input) {
    return {
        .given =
            [=](const std::string& name, bool is_label) {
                return is_label ? fmt::format("--npy {}=NAME.npy after {}",
                                              name,
                                              rewrite_npy_command(input.place, "x.astype(\"i8\")"))
                                : fmt::format("--npy {}={}", name, input.place);
            },
        .rewritten =
            [=](const std::string& numbers) { return rewrite_npy_command(input.place, numbers); }};
}

// Widens what is stored, before `then` makes a row of the field of it.
RowTransform widened_first(Widening widening, RowTransform then) {
    if (!widening.is_known()) return then;
    return [widening, then](std::span<const std::byte> stored, std::span<std::byte> out) {
        const std::size_t elements = stored.size() / widening.stored_bytes();
        std::vector<std::byte> wide(then ? elements * element_bytes(widening.type()) : 0);
        expect(widening.undo(stored, then ? wide : out), "a row holds whole elements");
        if (then) then(wide, out);
    };
}

void check_counts(const std::vector<NamedInput>& inputs,
                  const std::vector<std::vector<std::uint64_t>>& shapes) {
    for (std::size_t i = 1; i < shapes.size(); ++i) {
        const auto &first = shapes[0], &shape = shapes[i];
        if (shape[0] == first[0]) continue;
        const bool is_last = shape.size() > 1 && shape.back() == first[0];
        const bool is_last_of_first = first.size() > 1 && first.back() == shape[0];
        const std::string fix =
            is_last || is_last_of_first
                ? "put the samples first: " +
                      rewrite_npy_command(inputs[is_last ? i : 0].place, "n.moveaxis(x,-1,0)")
                : "give files of the same samples, with a row for each";
        throw Error("E209",
                    fmt::format("{} {} but {} {}",
                                grouped(first[0]),
                                inputs[0].field,
                                grouped(shape[0]),
                                inputs[i].field),
                    fmt::format("the first dimension counts samples: '{}' is [{}], '{}' is [{}]",
                                inputs[0].place,
                                fmt::join(first, ", "),
                                inputs[i].place,
                                fmt::join(shape, ", ")),
                    fix);
    }
}

// Writes one file of this one and others that are named behind it.
std::string way_to_stack(const NamedInput& input) {
    return fmt::format(
        "put the files into one, whose first dimension counts samples, and give that: python3 -c "
        "'import sys,numpy as n; o,*r=sys.argv[1:]; n.save(o,n.stack([n.load(f) for f "
        "in r]))' NAME.npy {}",
        shell_word(input.place));
}

}  // namespace

bool is_npy(const InputFile& file) {
    return file.begins_with(npy_magic);
}

NpyLayout read_npy_layout(const InputFile& file) {
    constexpr const char* is_cut = "it ends within its header";
    std::array<unsigned char, 12> head{};
    if (file.bytes() < head.size()) throw malformed_npy(file.path(), is_cut);
    file.read(0, std::as_writable_bytes(std::span(head)));
    if (!is_npy(file))
        throw other_kind(file.path(),
                         "an NPY file that can be packed",
                         "it does not begin as NPY files do",
                         ".npy");
    const int version = head[6];
    if (version < 1 || version > 3)
        throw malformed_npy(file.path(),
                            fmt::format("it has version {}; 1 to 3 are known", version));
    // The text follows magic, version and its own length.
    const std::uint64_t low = head[8] + 256u * head[9], high = head[10] + 256u * head[11];
    const std::uint64_t begin = version == 1 ? 10 : 12;
    const std::uint64_t bytes = version == 1 ? low : low + (high << 16);
    if (bytes > longest_npy_header || begin + bytes > file.bytes())
        throw malformed_npy(file.path(), is_cut);
    std::string text(bytes, '\0');
    file.read(begin, std::as_writable_bytes(std::span(text)));
    NpyLayout layout = HeaderParser(text, file.path()).parse();
    layout.data_offset = begin + bytes;
    return layout;
}

void check_npy_bytes(const InputFile& file, const NpyLayout& layout, std::size_t element_bytes) {
    std::uint64_t needed = element_bytes;
    for (const std::uint64_t size : layout.shape) needed *= size;
    const std::uint64_t bytes = file.bytes() - layout.data_offset;
    check(bytes == needed, [&] {
        return malformed_npy(file.path(),
                             fmt::format("{} of '{}' need {} bytes; it has {}",
                                         fmt::join(layout.shape, " x "),
                                         layout.descr,
                                         grouped(needed),
                                         grouped(bytes)));
    });
}

NpyHeader read_npy_header(const InputFile& file) {
    const NpyLayout layout = read_npy_layout(file);
    NpyHeader header = header_of(layout, file.path());
    check_npy_bytes(file, layout, header.stored_bytes());
    return header;
}

std::string npy_header_text(ElementType type, const std::vector<std::uint64_t>& shape) {
    std::string dictionary =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                    std::ranges::find(types, type, &NpyType::type)->descr,
                    fmt::join(shape, ", "),
                    shape.size() == 1 ? "," : "");
    constexpr std::size_t fixed = 10, alignment = 64;
    const std::size_t used = fixed + dictionary.size() + 1;
    dictionary.append((alignment - used % alignment) % alignment, ' ').append("\n");
    std::string text(npy_magic);
    text += {'\x01',
             '\x00',
             static_cast<char>(dictionary.size() & 0xff),
             static_cast<char>(dictionary.size() >> 8)};
    return text + dictionary;
}

std::unique_ptr<RowSource> open_npy(const std::vector<NamedInput>& inputs,
                                    ImageLayout layout,
                                    const SourceOptions& options) {
    check_inputs("npy", inputs, layout);
    std::vector<Field> fields;
    std::vector<Column> columns;
    std::vector<std::vector<std::uint64_t>> sizes;
    for (const NamedInput& input : inputs) {
        const auto file = open_npy_file(input, options);
        const NpyHeader header = read_npy_header(*file);
        check(!header.shape.empty(), [&] {
            return malformed_input(input.place,
                                   "a list of samples",
                                   "it is a single value",
                                   "save an array with a row for each sample");
        });
        const std::uint64_t count = header.shape[0];
        check_holds_all(header, input);
        std::size_t row_bytes = header.stored_bytes();
        for (std::size_t d = 1; d < header.shape.size(); ++d) row_bytes *= header.shape[d];
        const std::vector<std::int64_t> shape(header.shape.begin() + 1, header.shape.end());
        check_has_channels(input, layout, count, shape, way_to_stack(input));
        FieldPlan plan =
            plan_field(input.field, header.type, shape, layout, input.place, npy_ways(input));
        fields.push_back(std::move(plan.field));
        columns.push_back({{{file, header.data_offset, count, row_bytes}},
                           row_bytes,
                           widened_first(header.widening, std::move(plan.transform))});
        sizes.push_back(header.shape);
    }
    check_counts(inputs, sizes);
    return std::make_unique<ColumnSource>(std::move(fields), std::move(columns));
}

std::unique_ptr<RowSource> open_images(const fs::path& images,
                                       const fs::path& labels,
                                       ImageLayout layout,
                                       const SourceOptions& options) {
    const auto is_numpy = [](const fs::path& file) {
        return is_npz_place(file.string()) || is_npy(InputFile(file));
    };
    if (!is_numpy(images) && !is_numpy(labels)) return open_idx(images, labels, options, layout);
    return open_npy({{"images", images.string()}, {"labels", labels.string()}}, layout, options);
}

}  // namespace lockstep
