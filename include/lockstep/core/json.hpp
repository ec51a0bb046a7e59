// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON values and their text. Untrusted files are read with bounded depth and clear errors. Only
/// src/core/json_text.cpp includes the JSON library: this header costs a tenth of its compile time
/// in each file that reads or writes JSON.
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

/// One JSON value. An object keeps the order in which its keys came. Braces build what they look
/// like: {{"a", 1}, {"b", {1, 2}}} is an object, because every inner pair begins with text.
/// Anything else is an array.
class Json {
  public:
    using Array = std::vector<Json>;         ///< its items
    using Object = std::vector<JsonMember>;  ///< its members, in the order in which they came

    /// Makes null.
    Json() noexcept;
    /// Makes null.
    Json(std::nullptr_t) noexcept : Json() {}
    /// Copies the whole value, to any depth.
    Json(const Json&);
    Json(Json&&) noexcept;
    /// Copies the whole value, to any depth.
    Json& operator=(const Json&);
    Json& operator=(Json&&) noexcept;
    ~Json();

    /// Makes an object if all items are pairs that begin with text, else an array.
    Json(std::initializer_list<Json> items);
    /// Makes true or false. The compiler refuses types that only convert to bool, such as pointers.
    template <std::same_as<bool> T>
    Json(T flag) : Json() {
        set(flag);
    }
    /// Makes a whole number; its type decides whether it is signed.
    template <std::integral T>
    requires(!std::same_as<T, bool>) Json(T number) : Json() {
        if constexpr (std::signed_integral<T>)
            set(static_cast<std::int64_t>(number));
        else
            set(static_cast<std::uint64_t>(number));
    }
    /// Makes a number; NaN and infinities are written as null.
    template <std::floating_point T>
    Json(T number) : Json() {
        set(static_cast<double>(number));
    }
    /// Makes a text.
    template <std::convertible_to<std::string_view> T>
    Json(const T& text) : Json(std::string(std::string_view(text))) {}
    /// Makes a text.
    Json(std::string&& text);
    /// Makes an array.
    Json(Array items);
    /// Makes an array.
    template <class T>
    Json(const std::vector<T>& items) : Json(items.begin(), items.end()) {}
    /// Makes an array.
    template <class T>
    Json(const std::set<T>& items) : Json(items.begin(), items.end()) {}
    /// Makes an array.
    template <class T, std::size_t count>
    Json(const std::array<T, count>& items) : Json(items.begin(), items.end()) {}
    /// Makes an object.
    template <class T>
    Json(const std::map<std::string, T>& members) : Json(object()) {
        for (const auto& [key, value] : members) (*this)[key] = value;
    }

    /// Makes an empty array.
    static Json array() { return Json(Array()); }
    /// Makes an empty object.
    static Json object();

    /// Returns true for this type. A value is exactly one of null, boolean, string, array, object
    /// and number.
    bool is_null() const { return value_.index() == 0; }
    /// \copydoc is_null
    bool is_boolean() const { return std::holds_alternative<bool>(value_); }
    /// \copydoc is_null
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    /// \copydoc is_null
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    /// \copydoc is_null
    bool is_object() const { return std::holds_alternative<Object>(value_); }
    /// Returns true for a number that was read without a sign or came from an unsigned type.
    bool is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
    /// Returns true for a whole number in the range of std::int64_t.
    bool is_int64() const;
    /// Returns true for a number written without point and exponent.
    bool is_number_integer() const {
        return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
    }
    /// \copydoc is_null
    bool is_number() const { return is_number_integer() || std::holds_alternative<double>(value_); }
    /// Returns "null", "boolean", "number", "string", "array" or "object".
    const char* type_name() const;

    /// Returns the number of items of an array or members of an object; 0 for null, else 1.
    std::size_t size() const;
    /// Returns true if size() is 0.
    bool empty() const { return size() == 0; }

    /// Returns member `key`, or nullptr if it is missing or this is not an object.
    const Json* find(std::string_view key) const;
    /// Returns true if this is an object with `key`.
    bool contains(std::string_view key) const { return find(key) != nullptr; }
    /// Returns a member or an item. Errors: E222 if it does not exist.
    const Json& at(std::string_view key) const;
    /// \copydoc at(std::string_view) const
    const Json& at(std::size_t index) const;
    /// \copydoc at(std::string_view) const
    const Json& operator[](std::string_view key) const { return at(key); }
    /// \copydoc at(std::string_view) const
    const Json& operator[](std::size_t index) const { return at(index); }
    /// Returns member `key` of an object or of null, and creates it if it is missing.
    Json& operator[](std::string_view key);
    /// Returns item `index`. Errors: E222 if it does not exist.
    Json& operator[](std::size_t index);
    /// Returns the last item of an array, which must not be empty.
    Json& back();

    /// Returns the members of an object, in order. Errors: E222.
    const Object& items() const;
    /// Returns the first item of an array; null counts as empty. Errors: E222 for other types.
    const Json* begin() const;
    /// Returns the end of the items.
    const Json* end() const;
    /// \copydoc begin() const
    Json* begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
    /// Returns the end of the items.
    Json* end() { return const_cast<Json*>(std::as_const(*this).end()); }

    /// Appends an item to an array or to null. Errors: E222.
    void push_back(Json item);
    /// Takes over the members of another object.
    void update(const Json& other);
    /// Removes a member. Returns true if it existed.
    bool erase(std::string_view key);
    /// Appends a member to an object without a check for duplicates.
    Json& add_member(std::string key);
    /// Sorts members by name, at all depths.
    void sort_keys();

    /// Returns this value as T: bool, a number in T's range, text, vector or map of these. Errors:
    /// E222.
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
    /// Returns member `key` as T, or `fallback` if it is missing. Errors: E222.
    template <class T>
    T value(std::string_view key, T fallback) const {
        const Json* const found = find(key);
        return found ? found->get<T>() : std::move(fallback);
    }
    /// Returns member `key` as text, or `fallback` if it is missing.
    std::string value(std::string_view key, const char* fallback) const {
        return value(key, std::string(fallback));
    }

    /// Returns the text, on one line or with `indent` spaces for each level. Strings may hold any
    /// bytes, as file names do: a byte that is not UTF-8 is written as \\uef80 to \\uefff, whose
    /// last two digits are the byte. parse_json() reverses this.
    std::string dump(int indent = -1) const;

    /// Returns a string itself, or else dump().
    std::string as_text() const { return is_string() ? get<std::string>() : dump(); }

    /// Compares numbers by value, and objects with the order of their members.
    friend bool operator==(const Json& a, const Json& b) { return a.equals(b); }
    /// Writes dump() on one line, for messages of tests.
    friend std::ostream& operator<<(std::ostream& out, const Json& json);

  private:
    template <class Iterator>
    Json(Iterator begin, Iterator end) : Json(array()) {
        for (; begin != end; ++begin) push_back(*begin);
    }

    // Out of line: clang needs the complete type JsonMember where a constructor fills the variant.
    void set(const std::variant<bool, std::int64_t, std::uint64_t, double>& scalar);

    bool equals(const Json& other) const;
    bool flag() const;
    double number() const;
    const std::string& text() const;
    /// Returns the bits of the integer type with the given range.
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

/// Parses `text`, at most 64 nested arrays and objects, unique keys.
/// Errors: E222 with `origin` and the place of the first mistake.
Json parse_json(std::string_view text, const std::string& origin);

/// Returns the same, or nothing on errors: for lines of logs, where the last may be cut.
std::optional<Json> try_parse_json(std::string_view text);

/// Combines read_file() and parse_json().
Json read_json(const std::filesystem::path& path, std::size_t limit_bytes = 64u << 20);

}  // namespace lockstep
