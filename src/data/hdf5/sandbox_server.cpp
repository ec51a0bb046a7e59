// SPDX-License-Identifier: Apache-2.0
// lockstep-h5probe, the child that reads untrusted files: its rows, its limits, and its answers.
// Tested: data/hdf5/sandbox_test.cpp, foreign_labels_test.cpp, hostile_test.cpp.
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"

#include "format/codec.hpp"
#include "look.hpp"
#include "sandbox.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lockstep {
namespace {

Error unreadable(const RowsRequest& request, const std::string& why) {
    return Error(
        "E213", fmt::format("cannot read '{}:{}'", request.path.string(), request.dataset), why);
}

Error failed_read(const RowsRequest& request) {
    return h5::failure("E213", "read", request.path.string() + ":" + request.dataset);
}

h5::Handle open_file(const fs::path& path) {
    const h5::Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(access.id(), false, true);
#endif
    return {h5::checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), "E205", "open", path),
            H5Fclose};
}

// The beginnings of external files' names, where they are not found from this folder.
bool lies_beside(const h5::Handle& dataset) {
    const h5::Handle properties(H5Dget_create_plist(dataset.id()), H5Pclose);
    if (H5Pget_external_count(properties.id()) < 1) return false;
    std::array<char, 4096> name{};
    off_t offset = 0;
    hsize_t bytes = 0;
    H5Pget_external(properties.id(), 0, name.size() - 1, name.data(), &offset, &bytes);
    return !fs::exists(name.data());
}

// The library fills what it does not find with zeros, and says nothing.
std::string missing_part(const h5::Handle& dataset, const fs::path& file) {
    const h5::Handle properties(H5Dget_create_plist(dataset.id()), H5Pclose);
    std::size_t parts = 0;
    if (H5Pget_layout(properties.id()) != H5D_VIRTUAL) return "";
    H5Pget_virtual_count(properties.id(), &parts);
    for (std::size_t i = 0; i < parts; ++i) {
        std::array<char, 4096> name{};
        H5Pget_virtual_filename(properties.id(), i, name.data(), name.size() - 1);
        const fs::path part(name.data());
        const bool is_pattern = part.native().find('%') != std::string::npos;
        if (!is_pattern && part != "." && !fs::exists(part) &&
            !fs::exists(file.parent_path() / part))
            return part.string();
    }
    return "";
}

// A file may name any other that this user can read.
bool is_within_file(const h5::Handle& dataset) {
    const h5::Handle properties(H5Dget_create_plist(dataset.id()), H5Pclose);
    return H5Pget_layout(properties.id()) != H5D_VIRTUAL &&
           H5Pget_external_count(properties.id()) == 0;
}

// Bytes of the rows that are asked for; 0 if they are none, or more than `most`.
std::uint64_t bytes_of_rows(const RowsRequest& request,
                            const std::vector<hsize_t>& size,
                            std::uint64_t most) {
    if (size.empty() || request.first > size[0] || request.rows > size[0] - request.first) return 0;
    std::uint64_t bytes = element_bytes(request.type);
    for (std::size_t i = 0; i < size.size(); ++i) {
        const std::uint64_t extent = i == 0 ? request.rows : size[i];
        if (extent == 0 || extent > most / bytes) return 0;
        bytes *= extent;
    }
    return bytes;
}

// [n] or [n, 1], with the rows that are asked for.
bool is_column_of(const RowsRequest& request, const std::vector<hsize_t>& size) {
    return !size.empty() && size.size() <= 2 && request.first <= size[0] &&
           request.rows <= size[0] - request.first && request.rows > 0 &&
           (size.size() == 1 || size[1] == 1);
}

// In place. One byte is taken as it is: NumPy's bool is an enumeration of i8, and becomes u8.
bool become_numbers(const h5::Handle& type,
                    ElementType wanted,
                    std::uint64_t elements,
                    std::vector<std::byte>& rows) {
    if (wanted == ElementType::u8 && H5Tget_size(type.id()) == 1) return true;
    const h5::Handle stored(H5Tget_super(type.id()), H5Tclose);
    return H5Tconvert(
               stored.id(), h5::type_of(wanted), elements, rows.data(), nullptr, H5P_DEFAULT) >= 0;
}

// Returns the text part of an element of fixed length.
std::string_view text_in(std::string_view stored, H5T_str_t padding) {
    if (padding == H5T_STR_NULLTERM) return stored.substr(0, stored.find('\0'));
    const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
    const std::size_t last = stored.find_last_not_of(pad);
    return stored.substr(0, last == stored.npos ? 0 : last + 1);
}

std::string cut_text(std::string_view text) {
    return std::string(text.substr(0, most_text_bytes + 1));
}

// Selected rows of a column, as libhdf5 gives them: texts of fixed length, padded in one of three
// ways; texts or bytes of any length behind references into the file's heaps, which it allocates
// one by one. Nothing if it cannot read them.
struct ColumnRows {
    const h5::Handle &dataset, &type, &there, &here;
    std::uint64_t rows = 0;

    std::optional<Lists> of_fixed_length() const {
        constexpr std::size_t most_fixed_bytes = 65536;  // no file of labels has more of one text
        const std::size_t bytes = H5Tget_size(type.id());
        if (bytes == 0 || bytes > most_fixed_bytes) return {};
        std::vector<char> stored(rows * bytes);
        if (!read(stored.data())) return {};
        const H5T_str_t padding = H5Tget_strpad(type.id());
        Lists lists;
        for (std::uint64_t row = 0; row < rows; ++row)
            lists.push_back(cut_text(text_in({stored.data() + row * bytes, bytes}, padding)));
        return lists;
    }

    // Each `Reference` stands for what `content_of` makes of it.
    template <class Reference, class ContentOf>
    std::optional<Lists> of_any_length(ContentOf&& content_of) const {
        std::vector<Reference> stored(rows, Reference{});
        const bool is_read = read(stored.data());
        Lists lists;
        if (is_read) std::ranges::transform(stored, std::back_inserter(lists), content_of);
        H5Dvlen_reclaim(type.id(), here.id(), H5P_DEFAULT, stored.data());
        return is_read ? std::optional(std::move(lists)) : std::nullopt;
    }

  private:
    bool read(void* to) const {
        return H5Dread(dataset.id(), type.id(), here.id(), there.id(), H5P_DEFAULT, to) >= 0;
    }
};

// Reads rows of data sets, and keeps the last one open. Filters may be plugins of libhdf5
// (HDF5_PLUGIN_PATH): libhdf5 parses the whole file.
class RowReading {
  public:
    // Errors: E205, E207 if there is no such data set, E213 if it has other rows than are asked for
    // or the library cannot read them; `why` says what it says.
    std::vector<std::byte> read(const RowsRequest& request) {
        const h5::QuietErrors quiet;
        open(request);
        if (request.bytes == 0 || bytes_of_rows(request, size_, request.bytes) != request.bytes)
            throw unreadable(request, "it has changed since it was opened");
        const auto [there, here] = select(request);
        const h5::Handle stored(H5Dget_type(dataset_.id()), H5Tclose);
        // The library does not convert enumerations to numbers; they are read as they are first. So
        // is PyTables' bool, of bits.
        const H5T_class_t kind = H5Tget_class(stored.id());
        const bool is_enum = kind == H5T_ENUM;
        const std::uint64_t elements = request.bytes / element_bytes(request.type);
        std::vector<std::byte> rows(
            is_enum ? std::max(request.bytes, elements * H5Tget_size(stored.id())) : request.bytes);
        const hid_t type =
            is_enum || kind == H5T_BITFIELD ? stored.id() : h5::type_of(request.type);
        if (H5Dread(dataset_.id(), type, here.id(), there.id(), H5P_DEFAULT, rows.data()) < 0 ||
            (is_enum && !become_numbers(stored, request.type, elements, rows)))
            throw failed_read(request);
        rows.resize(request.bytes);
        return rows;
    }

    // The texts or lists of bytes of rows of a data set [n] or [n, 1]; of a longer text the first
    // most_text_bytes + 1. Errors: as read(), also where it holds others.
    Lists read_lists(const RowsRequest& request) {
        const h5::QuietErrors quiet;
        open(request);
        const h5::Handle type(H5Dget_type(dataset_.id()), H5Tclose);
        const H5T_class_t kind = H5Tget_class(type.id());
        const h5::Handle element(kind == H5T_VLEN ? H5Tget_super(type.id()) : hid_t{-1}, H5Tclose);
        const bool are_bytes = element && H5Tget_size(element.id()) == 1;
        if (!is_column_of(request, size_) || !(are_bytes || kind == H5T_STRING))
            throw unreadable(request, "it has changed since it was opened");
        const auto [there, here] = select(request);
        const ColumnRows column{dataset_, type, there, here, request.rows};
        std::optional<Lists> lists;
        if (are_bytes)
            lists = column.of_any_length<hvl_t>([](const hvl_t& row) {
                return std::string(row.len == 0 ? "" : static_cast<const char*>(row.p), row.len);
            });
        else if (H5Tis_variable_str(type.id()) > 0)
            lists = column.of_any_length<char*>(  // a reference to nothing is an empty text
                [](const char* text) { return cut_text(text != nullptr ? text : ""); });
        else
            lists = column.of_fixed_length();
        if (!lists) throw failed_read(request);
        return *std::move(lists);
    }

  private:
    // What a read takes from the open data set, and its room in memory.
    struct Selection {
        h5::Handle there, here;
    };

    void open(const RowsRequest& request) {
        if (dataset_ && request.path == opened_.path && request.dataset == opened_.dataset &&
            request.links == opened_.links)
            return;
        dataset_.reset();
        H5PLset_loading_state(H5PL_FILTER_PLUGIN);
        file_ = open_file(request.path);
        const h5::Handle access = h5::access_to_dataset(request.links);
        const auto opened = [&] {
            return h5::Handle(H5Dopen2(file_.id(), request.dataset.c_str(), access.id()), H5Dclose);
        };
        h5::Handle found = opened();
        check(static_cast<bool>(found),
              [&] { return h5::failure("E207", "open", request.dataset); });
        if (request.links == Links::refused && !is_within_file(found))
            throw unreadable(request, "its values lie in other files, which are not followed");
        if (const std::string part = missing_part(found, request.path); !part.empty())
            throw unreadable(request, fmt::format("its part '{}' is missing", part));
        if (lies_beside(found)) {
            H5Pset_efile_prefix(access.id(), "${ORIGIN}");
            found.reset();  // or the library keeps the prefix that it was opened with
            found = opened();
        }
        size_ = h5::extent_of(found);
        is_value_ = size_.empty();
        if (is_value_) size_ = {1};
        dataset_ = std::move(found);
        opened_ = request;
    }

    Selection select(const RowsRequest& request) const {
        std::vector<hsize_t> start(size_.size(), 0), count = size_;
        start[0] = request.first;
        count[0] = request.rows;
        Selection selected{
            {H5Dget_space(dataset_.id()), H5Sclose},
            {H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose}};
        if (!is_value_ &&
            H5Sselect_hyperslab(
                selected.there.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) <
                0)
            throw failed_read(request);
        return selected;
    }

    RowsRequest opened_;
    h5::Handle file_, dataset_;
    std::vector<hsize_t> size_;
    bool is_value_ = false;  // it has no dimensions, and counts as one row
};

// h5py's own filter, lzf, for libhdf5, which only h5py extends by it: data that only the library
// can read (texts, other layouts) may use it.

// H5Z_func_t: expands the data in `*buffer` into a new buffer; returns 0 if that fails, without a
// message. This filter only reads.
std::size_t undo_lzf(unsigned flags,
                     std::size_t,
                     const unsigned*,
                     std::size_t bytes,
                     std::size_t* room,
                     void** buffer) {
    if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;
    const std::span stored(static_cast<const std::byte*>(*buffer), bytes);
    const std::uint64_t size = lzf_bytes(stored);
    if (size == 0 || size > most_chunk_bytes) return 0;
    void* const made = H5allocate_memory(size, false);
    if (made == nullptr) return 0;
    if (!decode_lzf(stored, {static_cast<std::byte*>(made), size})) {
        H5free_memory(made);
        return 0;
    }
    H5free_memory(*buffer);
    *buffer = made;
    *room = size;
    return size;
}

/// For as long as this process lives. Filters whose decoders are libraries of their own are left to
/// plug-ins: lockstep-h5probe is to need libhdf5 alone.
void register_own_filters() {
    const H5Z_class2_t filter{H5Z_CLASS_T_VERS,
                              static_cast<H5Z_filter_t>(FilterKind::lzf),
                              0,
                              1,
                              "lzf",
                              nullptr,
                              nullptr,
                              undo_lzf};
    H5Zregister(&filter);
}

// Sanitizers reserve terabytes of addresses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool limits_memory = false;
#else
constexpr bool limits_memory = true;
#endif

void limit(int resource, rlim_t value) {
    rlimit now{};
    ::getrlimit(resource, &now);
    now.rlim_cur = now.rlim_max == RLIM_INFINITY ? value : std::min(value, now.rlim_max);
    ::setrlimit(resource, &now);
}

// Before the first byte of a file is looked at.
void confine() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_DUMPABLE, 0);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    limit(RLIMIT_CORE, 0);
    if (limits_memory) limit(RLIMIT_AS, most_child_addresses);
    H5PLset_loading_state(0);
}

// The CPU time that this process may have used when the answer is there.
void allow_cpu(std::uint64_t seconds) {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    limit(RLIMIT_CPU,
          static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds + 1);
}

bool receive(int socket, std::span<std::byte> out) {
    while (!out.empty()) {
        const ssize_t got = ::read(socket, out.data(), out.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return true;
}

bool answer(int socket, FrameKind kind, std::span<const std::byte> bytes) {
    const Frame frame{.kind = kind, .bytes = bytes.size()};
    return send_all(socket, std::as_bytes(std::span(&frame, 1))) && send_all(socket, bytes);
}

std::vector<std::byte> made_for(FrameKind kind,
                                std::span<const std::byte> request,
                                RowReading& rows) {
    if (kind == FrameKind::read) return rows.read(rows_request_from(request));
    if (kind == FrameKind::lists) return to_bytes(rows.read_lists(rows_request_from(request)));
    if (kind == FrameKind::list) return to_bytes(list_datasets(request_from(request).path));
    return to_bytes(look_at_file(request_from(request)));
}

// Answers with what was asked for, or with why it is not there.
bool serve(int socket, FrameKind kind, std::span<const std::byte> request, RowReading& rows) {
    std::vector<std::byte> bytes;
    std::string refusal;
    try {
        bytes = made_for(kind, request, rows);
    } catch (const Error& error) {
        refusal = error.why().empty() ? error.what() : error.why();
    }
    if (!refusal.empty()) return answer(socket, FrameKind::refused, bytes_of(refusal));
    return answer(socket, kind, bytes);
}

// Answers requests on `socket` until it is closed. Returns the exit code.
int serve_requests(int socket) try {
    confine();
    register_own_filters();
    RowReading rows;
    Frame frame;
    while (receive(socket, std::as_writable_bytes(std::span(&frame, 1)))) {
        if (frame.magic != Frame::frame_magic || frame.bytes > most_frame_bytes) return 64;
        std::vector<std::byte> bytes(frame.bytes);
        if (!receive(socket, bytes)) return 64;
        allow_cpu(frame.cpu_s);
        if (!serve(socket, frame.kind, bytes, rows)) return 0;
    }
    return 0;
} catch (const std::bad_alloc&) {
    return exit_out_of_memory;
}

}  // namespace
}  // namespace lockstep

int main() {
    int kind = 0;
    socklen_t size = sizeof kind;
    if (::getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &kind, &size) != 0) {
        std::fputs("lockstep-h5probe is started by lockstep, not by hand\n", stderr);
        return 64;
    }
    const int code = lockstep::serve_requests(STDIN_FILENO);
    // Not by way of libhdf5's own clean-up, which may meet what a hostile file left behind.
    ::_exit(code);
}
