// SPDX-License-Identifier: Apache-2.0
// Texts as libhdf5 gives them: of fixed length padded in one of three ways, or of any length behind
// references into the file's heaps, which it allocates one by one.
#include "row_reading.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

namespace lockstep {
namespace {

// No file of labels has more of one text.
constexpr std::size_t most_fixed_bytes = 65536;

// What of an element of fixed length is its text.
std::string_view text_in(std::string_view stored, H5T_str_t padding) {
    if (padding == H5T_STR_NULLTERM) return stored.substr(0, stored.find('\0'));
    const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
    const std::size_t last = stored.find_last_not_of(pad);
    return stored.substr(0, last == stored.npos ? 0 : last + 1);
}

// Numbers texts as they come.
class Collected {
  public:
    void add(std::string_view text) {
        std::string key(text.substr(0, most_text_bytes + 1));
        const auto next = static_cast<std::uint32_t>(texts_.distinct.size());
        const auto [at, is_new] = numbers_.try_emplace(key, next);
        if (is_new) texts_.distinct.push_back(std::move(key));
        texts_.rows.push_back(at->second);
    }
    Texts finish() { return std::move(texts_); }

  private:
    Texts texts_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
};

// Selected rows of a data set.
struct TextRows {
    const h5::Handle &dataset, &type, &there, &here;
    std::uint64_t rows = 0;

    bool read(void* to) const {
        return H5Dread(dataset.id(), type.id(), here.id(), there.id(), H5P_DEFAULT, to) >= 0;
    }
};

bool add_fixed(const TextRows& selected, Collected& texts) {
    const std::size_t bytes = H5Tget_size(selected.type.id());
    if (bytes == 0 || bytes > most_fixed_bytes) return false;
    std::vector<char> rows(selected.rows * bytes);
    if (!selected.read(rows.data())) return false;
    const H5T_str_t padding = H5Tget_strpad(selected.type.id());
    for (std::uint64_t row = 0; row < selected.rows; ++row)
        texts.add(text_in({rows.data() + row * bytes, bytes}, padding));
    return true;
}

// A reference to nothing is an empty text.
bool add_variable(const TextRows& selected, Collected& texts) {
    std::vector<char*> rows(selected.rows, nullptr);
    const bool is_read = selected.read(rows.data());
    if (is_read)
        for (const char* text : rows) texts.add(text != nullptr ? text : "");
    H5Dvlen_reclaim(selected.type.id(), selected.here.id(), H5P_DEFAULT, rows.data());
    return is_read;
}

}  // namespace

Texts RowReading::read_texts(const RowsRequest& request) {
    const h5::QuietErrors quiet;
    open(request);
    const bool has_rows = !size_.empty() && size_.size() <= 2 && request.first <= size_[0] &&
                          request.rows <= size_[0] - request.first && request.rows > 0 &&
                          (size_.size() == 1 || size_[1] == 1);
    const h5::Handle type(H5Dget_type(dataset_.id()), H5Tclose);
    check(has_rows && H5Tget_class(type.id()) == H5T_STRING, [&] {
        return Error("E213",
                     fmt::format("cannot read '{}:{}'", request.path.string(), request.dataset),
                     "it is not what it was a moment ago");
    });
    const auto [there, here] = select(request);
    const TextRows selected{dataset_, type, there, here, request.rows};
    Collected texts;
    const bool is_read = H5Tis_variable_str(type.id()) > 0 ? add_variable(selected, texts)
                                                           : add_fixed(selected, texts);
    if (!is_read) throw h5::failure("E213", "read", request.path.string() + ":" + request.dataset);
    return texts.finish();
}

}  // namespace lockstep
