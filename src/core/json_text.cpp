// SPDX-License-Identifier: Apache-2.0
// The grammar of JSON: nlohmann's parser and its way to write numbers and text, behind lockstep's
// own values. The one file that sees the library.
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

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

// What the library says, without its own error number in brackets.
std::string reason_of(const Library::exception& error) {
    const std::string_view text = error.what();
    const auto tag_end = text.find("] ");
    return std::string(text.starts_with('[') && tag_end != text.npos ? text.substr(tag_end + 2)
                                                                     : text);
}

std::string scalar_text(const Library& value, Utf8 utf8) {
    const auto handler =
        utf8 == Utf8::strict ? Library::error_handler_t::strict : Library::error_handler_t::replace;
    return value.dump(-1, ' ', false, handler);
}

// Nearly all text is such that it needs no second look.
bool is_plain(std::string_view text) {
    return std::ranges::all_of(text, [](char letter) {
        return letter >= 0x20 && letter < 0x7F && letter != '"' && letter != '\\';
    });
}

std::string quoted(const std::string& text, Utf8 utf8) {
    return is_plain(text) ? '"' + text + '"' : scalar_text(text, utf8);
}

// Builds the value while the parser runs, and refuses depth and repeated keys before anything large
// is built. Open containers are the last of their parents, so that pointers to them stay.
class Builder {
  public:
    Builder(const std::string& origin, int max_depth)
        : origin_(origin), max_depth_(static_cast<std::size_t>(std::max(max_depth, 0))) {}

    Json take() { return std::move(root_); }

    bool null() { return add(Json()); }
    bool boolean(bool flag) { return add(flag); }
    bool number_integer(std::int64_t number) { return add(number); }
    bool number_unsigned(std::uint64_t number) { return add(number); }
    bool number_float(double number, const std::string&) { return add(number); }
    bool string(std::string& text) { return add(std::move(text)); }
    bool binary(Library::binary_t&) { return false; }
    bool start_object(std::size_t) { return open(Json::object()); }
    bool start_array(std::size_t) { return open(Json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& name) {
        if (!open_.back().keys.insert(name).second)
            throw senseless(origin_,
                            fmt::format("key {} is there twice", quoted(name, Utf8::strict)));
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
        if (open_.size() >= max_depth_)
            throw senseless(origin_, fmt::format("nested deeper than {} levels", max_depth_));
        open_.push_back({place(std::move(container)), {}});
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const std::string& origin_;
    std::size_t max_depth_;
    Json root_;
    std::string key_;
    std::vector<Open> open_;
};

// Layout as the library's own.
class Writer {
  public:
    Writer(int indent, Utf8 utf8) : indent_(indent), utf8_(utf8) {}

    std::string take() { return std::move(text_); }

    void write(const Json& value) {
        if (value.is_object())
            write_all(value.items(), '{', '}');
        else if (value.is_array())
            write_all(value, '[', ']');
        else if (value.is_string())
            text_ += quoted(value.get<std::string>(), utf8_);
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
            text_ += scalar_text(value.get<double>(), utf8_);
    }
    void write_item(const Json& item) { write(item); }
    void write_item(const JsonMember& member) {
        text_ += quoted(member.key, utf8_) + (indent_ < 0 ? ":" : ": ");
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
    Utf8 utf8_;
    std::size_t depth_ = 0;
    std::string text_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& origin, int max_depth) {
    Builder builder(origin, max_depth);
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

std::string Json::dump(int indent, Utf8 utf8) const {
    try {
        Writer writer(indent, utf8);
        writer.write(*this);
        return writer.take();
    } catch (const Library::exception& error) {
        throw Error("E222", "a text cannot be written as JSON", reason_of(error));
    }
}

bool is_utf8(std::string_view text) {
    try {
        static_cast<void>(scalar_text(text, Utf8::strict));
    } catch (const Library::exception&) {
        return false;
    }
    return true;
}

}  // namespace lockstep
