// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON as a value, and its text: from untrusted files, with bounded depth and clear errors. The
/// library that knows the grammar is seen by src/core/json_text.cpp alone: this header costs a
/// tenth of it in each file that reads or writes JSON.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

struct JsonMember;

/// One JSON value. An object keeps the order in which its keys came. Braces build as they look:
/// {{"a", 1}, {"b", {1, 2}}} is an object, where every inner pair begins with text; else an array.
class Json {
  public:
    using Array = std::vector<Json>;         ///< its items
    using Object = std::vector<JsonMember>;  ///< its members, in the order in which they came

    /// null.
    Json() noexcept;
    /// null.
    Json(std::nullptr_t) noexcept : Json() {}
    /// All of it, to any depth.
    Json(const Json&);
    Json(Json&&) noexcept;
    /// All of it, to any depth.
    Json& operator=(const Json&);
    Json& operator=(Json&&) noexcept;
    ~Json();

    /// An object of pairs that begin with text, or an array.
    Json(std::initializer_list<Json> items);
    /// true or false; what only converts to bool, as a pointer, is refused by the compiler.
    template <std::same_as<bool> T>
    Json(T flag) : Json() {
        set(flag);
    }
    /// A whole number, whose sign is kept with its type.
    template <std::integral T>
    requires(!std::same_as<T, bool>) Json(T number) : Json() {
        if constexpr (std::signed_integral<T>)
            set(static_cast<std::int64_t>(number));
        else
            set(static_cast<std::uint64_t>(number));
    }
    /// A number; NaN and infinities become null when written.
    template <std::floating_point T>
    Json(T number) : Json() {
        set(static_cast<double>(number));
    }
    /// Text.
    template <std::convertible_to<std::string_view> T>
    Json(const T& text) : Json(std::string(std::string_view(text))) {}
    /// Text.
    Json(std::string&& text);
    /// An array.
    Json(Array items);
    /// An array.
    template <class T>
    Json(const std::vector<T>& items) : Json(items.begin(), items.end()) {}
    /// An array.
    template <class T>
    Json(const std::set<T>& items) : Json(items.begin(), items.end()) {}
    /// An array.
    template <class T, std::size_t count>
    Json(const std::array<T, count>& items) : Json(items.begin(), items.end()) {}
    /// An object.
    template <class T>
    Json(const std::map<std::string, T>& members) : Json(object()) {
        for (const auto& [key, value] : members) (*this)[key] = value;
    }

    /// An empty array.
    static Json array();
    /// An empty object.
    static Json object();

    /// What this is: exactly one of null, boolean, string, array, object and number.
    bool is_null() const { return value_.index() == 0; }
    /// \copydoc is_null
    bool is_boolean() const { return std::holds_alternative<bool>(value_); }
    /// \copydoc is_null
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    /// \copydoc is_null
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    /// \copydoc is_null
    bool is_object() const { return std::holds_alternative<Object>(value_); }
    /// Read without a sign, or given by an unsigned type.
    bool is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
    /// A number that was written without point and exponent.
    bool is_number_integer() const {
        return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
    }
    /// \copydoc is_null
    bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
    /// "null", "boolean", "number", "string", "array" or "object".
    const char* type_name() const;

    /// Items of an array or members of an object; 0 of null, else 1.
    std::size_t size() const;
    /// Nothing within: also null.
    bool empty() const { return size() == 0; }

    /// Member `key`, or nullptr; also if this is not an object.
    const Json* find(std::string_view key) const;
    /// Whether this is an object with `key`.
    bool contains(std::string_view key) const { return find(key) != nullptr; }
    /// Errors: E222 if it is not there.
    const Json& at(std::string_view key) const;
    /// \copydoc at(std::string_view) const
    const Json& at(std::size_t index) const;
    /// \copydoc at(std::string_view) const
    const Json& operator[](std::string_view key) const { return at(key); }
    /// \copydoc at(std::string_view) const
    const Json& operator[](std::size_t index) const { return at(index); }
    /// Makes the member, of an object or of null.
    Json& operator[](std::string_view key);
    /// Errors: E222 if it is not there.
    Json& operator[](std::size_t index);
    /// The last item of an array that is not empty.
    Json& back();

    /// The members of an object, in order. Errors: E222.
    const Object& items() const;
    /// Of an array; none of null. Errors: E222 if it is something else.
    const Json* begin() const;
    /// Behind the last.
    const Json* end() const;
    /// \copydoc begin() const
    Json* begin();
    /// Behind the last.
    Json* end();

    /// A new last item, of an array or of null. Errors: E222.
    void push_back(Json item);
    /// Takes over the members of another object.
    void update(const Json& other);
    /// Removes a member; whether it was there.
    bool erase(std::string_view key);
    /// A new last member of an object; the others are not checked.
    Json& add_member(std::string key);
    /// Members by name, here and in all that is within.
    void sort_keys();

    /// This value as T: bool, a number in T's range, text, vector or map of these. Errors: E222.
    template <class T>
    T get() const {
        if constexpr (std::same_as<T, Json>) {
            return *this;
        } else if constexpr (std::same_as<T, bool>) {
            return flag();
        } else if constexpr (std::integral<T>) {
            return static_cast<T>(
                integer(static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                        static_cast<std::uint64_t>(std::numeric_limits<T>::max())));
        } else if constexpr (std::floating_point<T>) {
            return static_cast<T>(number());
        } else if constexpr (std::same_as<T, std::string>) {
            return text();
        } else {
            return collected(std::type_identity<T>());
        }
    }
    /// Member `key` as T, or `fallback` if it is missing. Errors: E222.
    template <class T>
    T value(std::string_view key, T fallback) const {
        const Json* const found = find(key);
        return found ? found->get<T>() : std::move(fallback);
    }
    /// The same for text.
    std::string value(std::string_view key, const char* fallback) const {
        return value(key, std::string(fallback));
    }

    /// The text; on one line, or with `indent` spaces a level. Texts may be any bytes, as names of
    /// files are: a byte that is not UTF-8 is written as \\uef80 to \\uefff, whose last two digits
    /// it is, and parse_json() makes it of these again.
    std::string dump(int indent = -1) const;

    /// Numbers are equal by value, objects also by the order of their members.
    friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }
    /// dump() on one line, for messages of tests.
    friend std::ostream& operator<<(std::ostream& out, const Json& json);

  private:
    template <class Iterator>
    Json(Iterator begin, Iterator end) : Json(array()) {
        for (; begin != end; ++begin) push_back(*begin);
    }

    // Out of line: clang needs JsonMember whole where a constructor fills the variant.
    void set(bool flag);
    void set(std::int64_t number);
    void set(std::uint64_t number);
    void set(double number);

    bool equals(const Json& other) const;
    bool flag() const;
    double number() const;
    const std::string& text() const;
    /// As bits of the type whose range is given.
    std::uint64_t integer(std::int64_t least, std::uint64_t most) const;
    template <class T>
    std::vector<T> collected(std::type_identity<std::vector<T>>) const {
        std::vector<T> all;
        all.reserve(size());
        for (const Json& item : *this) all.push_back(item.get<T>());
        return all;
    }
    template <class T>
    std::map<std::string, T> collected(std::type_identity<std::map<std::string, T>>) const;

    std::variant<std::monostate,
                 bool,
                 std::int64_t,
                 std::uint64_t,
                 double,
                 std::string,
                 Array,
                 Object>
        value_;
};

/// One member of an object.
struct JsonMember {
    std::string key;
    Json value;
    friend bool operator==(const JsonMember&, const JsonMember&) = default;
};

template <class T>
std::map<std::string, T> Json::collected(std::type_identity<std::map<std::string, T>>) const {
    std::map<std::string, T> all;
    for (const JsonMember& member : items())
        all.emplace(member.key, member.value.template get<T>());
    return all;
}

/// Parses `text`, at most `max_depth` nested arrays and objects, unique keys.
/// Errors: E222 with `origin` and the place of the first mistake.
Json parse_json(std::string_view text, const std::string& origin, int max_depth = 64);

/// The same, or nothing: for lines of logs, of which the last may be cut.
std::optional<Json> try_parse_json(std::string_view text);

/// read_file + parse_json.
Json read_json(const std::filesystem::path& path, std::size_t limit_bytes = 64u << 20);

/// Member `key` of `object` as T. Errors: E222 naming origin, key and the type found.
template <class T>
T json_field(const Json& object, const std::string& key, const std::string& origin);

}  // namespace lockstep
