// SPDX-License-Identifier: Apache-2.0
// The grammar of JSON: nlohmann's parser, and its form of numbers and text, behind lockstep's own
// values. Only this file includes the library.
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Library = nlohmann::ordered_json;

Error senseless(const std::string& origin, const std::string& why) {
    return Error("E222",
                 fmt::format("'{}' makes no sense as JSON", origin),
                 why,
                 "restore it from its source; do not edit it");
}

// Returns the library's message, without its own error number in brackets.
std::string reason_of(const Library::exception& error) {
    const std::string_view text = error.what();
    const auto tag_end = text.find("] ");
    return std::string(text.starts_with('[') && tag_end != text.npos ? text.substr(tag_end + 2)
                                                                     : text);
}

// Bytes that are not UTF-8 are characters of the private use area while they are JSON, after
// MirOS's OPTU-8: 0x80 to 0xFF is U+EF80 to U+EFFF. Real characters of that range are taken for
// three such bytes, so that what is read is what was written, whatever it was.
constexpr char32_t first_of_bytes = 0xEF80, last_of_bytes = 0xEFFF;

// Returns the bytes of the first character of `text`, in UTF-8 (RFC 3629); 0 if it is none, or one
// that stands for a byte.
std::size_t character_bytes(std::string_view text) {
    const auto [bytes, code, is_control] = first_character(text);
    if (bytes == 1) return code < 0x80 ? 1 : 0;
    constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool is_surrogate = code >= 0xD800 && code < 0xE000;
    const bool is_byte = code >= first_of_bytes && code <= last_of_bytes;
    return code < least[bytes] || code > 0x10FFFF || is_surrogate || is_byte ? 0 : bytes;
}

// Returns how many bytes of `text` are characters before the first that is not.
std::size_t characters_prefix(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t bytes = character_bytes(text.substr(at));
        if (bytes == 0) break;
        at += bytes;
    }
    return at;
}

// The bytes that characters of the private use area stand for.
void restore_bytes(std::string& text) {
    for (std::size_t at = 0; (at = text.find('\xEE', at)) != std::string::npos; ++at) {
        if (text.size() - at < 3) return;
        const auto second = static_cast<unsigned char>(text[at + 1]);
        if (second != 0xBE && second != 0xBF) continue;
        const int low = static_cast<unsigned char>(text[at + 2]);
        text.replace(at, 3, 1, static_cast<char>(second == 0xBE ? low : low + 0x40));
    }
}

// Nearly all text is such that it needs no second look.
bool is_plain(std::string_view text) {
    return std::ranges::all_of(text, [](char letter) {
        return letter >= 0x20 && letter < 0x7F && letter != '"' && letter != '\\';
    });
}

std::string in_quotes(std::string_view text) {
    std::string made = "\"";
    if (is_plain(text)) return made.append(text) + '"';
    for (;;) {
        const std::size_t sound = characters_prefix(text);
        const std::string part = Library(text.substr(0, sound)).dump();
        made.append(part, 1, part.size() - 2);
        if (sound == text.size()) return made + '"';
        made += fmt::format("\\uef{:02x}", static_cast<unsigned char>(text[sound]));
        text.remove_prefix(sound + 1);
    }
}

// Measured: such texts take at most 219 MiB. A shard has some 540 bytes and 16 values of a
// manifest: one of 60,000 shards fits.
constexpr std::size_t most_bytes = 32 << 20, most_values = 1'500'000, most_keys = 100'000;
constexpr std::size_t most_levels = 64;  // of arrays and objects

// Builds the value while the parser runs. It refuses depth, repeated keys and too many values
// before anything large is built. Open containers are the last of their parents, so that pointers
// to them stay.
class Builder {
  public:
    explicit Builder(const std::string& origin) : origin_(origin) {}

    Json take() { return std::move(root_); }

    bool null() { return add(Json()); }
    bool boolean(bool flag) { return add(flag); }
    bool number_integer(std::int64_t number) { return add(number); }
    bool number_unsigned(std::uint64_t number) { return add(number); }
    bool number_float(double number, const std::string&) { return add(number); }
    bool string(std::string& text) {
        restore_bytes(text);
        return add(std::move(text));
    }
    bool binary(Library::binary_t&) { return false; }
    bool start_object(std::size_t) { return open(Json::object()); }
    bool start_array(std::size_t) { return open(Json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& name) {
        restore_bytes(name);
        if (!open_.back().keys.insert(name).second)
            throw senseless(origin_, fmt::format("key {} is there twice", in_quotes(name)));
        if (open_.back().keys.size() > most_keys)
            throw senseless(origin_, fmt::format("an object of more than {} keys", most_keys));
        key_ = std::move(name);
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Library::exception& error) {
        throw senseless(origin_, reason_of(error));
    }

  private:
    struct Open {
        Json* container;
        std::set<std::string> keys;
    };

    bool add(Json value) {
        place(std::move(value));
        return true;
    }
    Json* place(Json value) {
        if (++values_ > most_values)
            throw senseless(origin_, fmt::format("more than {} values", most_values));
        if (open_.empty()) {
            root_ = std::move(value);
            return &root_;
        }
        Json& parent = *open_.back().container;
        if (parent.is_array()) {
            parent.push_back(std::move(value));
            return &parent.back();
        }
        Json& member = parent.add_member(std::move(key_));
        member = std::move(value);
        return &member;
    }
    bool open(Json container) {
        if (open_.size() >= most_levels)
            throw senseless(origin_, fmt::format("nested deeper than {} levels", most_levels));
        open_.push_back({place(std::move(container)), {}});
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const std::string& origin_;
    std::size_t values_ = 0;
    Json root_;
    std::string key_;
    std::vector<Open> open_;
};

// Layout as the library's own.
class Writer {
  public:
    explicit Writer(int indent) : indent_(indent) {}

    std::string take() { return std::move(text_); }

    void write(const Json& value) {
        if (value.is_object())
            write_all(value.items(), '{', '}');
        else if (value.is_array())
            write_all(value, '[', ']');
        else if (value.is_string())
            text_ += in_quotes(value.get<std::string>());
        else
            write_scalar(value);
    }

  private:
    void write_scalar(const Json& value) {
        if (value.is_null())
            text_ += "null";
        else if (value.is_boolean())
            text_ += value.get<bool>() ? "true" : "false";
        else if (value.is_number_unsigned())
            text_ += fmt::to_string(value.get<std::uint64_t>());
        else if (value.is_number_integer())
            text_ += fmt::to_string(value.get<std::int64_t>());
        else
            text_ += Library(value.get<double>()).dump();
    }
    void write_item(const Json& item) { write(item); }
    void write_item(const JsonMember& member) {
        text_ += in_quotes(member.key) + (indent_ < 0 ? ":" : ": ");
        write(member.value);
    }
    template <class Items>
    void write_all(const Items& items, char begin, char end) {
        text_ += begin;
        if (items.size() == 0) {
            text_ += end;
            return;
        }
        ++depth_;
        bool is_first = true;
        for (const auto& item : items) {
            if (!is_first) text_ += ',';
            is_first = false;
            break_line();
            write_item(item);
        }
        --depth_;
        break_line();
        text_ += end;
    }
    void break_line() {
        if (indent_ < 0) return;
        text_ += '\n';
        text_.append(depth_ * static_cast<std::size_t>(indent_), ' ');
    }

    int indent_;
    std::size_t depth_ = 0;
    std::string text_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& origin) {
    if (text.size() > most_bytes)
        throw senseless(origin, fmt::format("more than {} MiB", most_bytes >> 20));
    Builder builder(origin);
    Library::sax_parse(text, &builder);
    return builder.take();
}

std::optional<Json> try_parse_json(std::string_view text) {
    try {
        return parse_json(text, "line");
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::string Json::dump(int indent) const {
    Writer writer(indent);
    writer.write(*this);
    return writer.take();
}

}  // namespace lockstep
