// SPDX-License-Identifier: Apache-2.0
// Files of tokens, joined and cut into windows that share one token with the next:
//
//   files    a0 a1 a2 a3 | b0 b1 b2 ...
//   windows  [a0 a1 a2 a3]              of length 3: the inputs are a0 a1 a2, the targets a1 a2 a3
//                     [a3 b0 b1 b2]     so that each token but the first is a target once
//
// Nothing is read before a window is requested, and only one window is in memory.
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/sources.hpp"

#include "column.hpp"
#include "format/labels.hpp"
#include "hdf5/contents.hpp"
#include "npy_header.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t piece_tokens = std::uint64_t{1} << 18;

template <class Stored>
std::int64_t as_number(std::span<const std::byte> stored, std::size_t i) {
    return element_at<Stored>(stored, i);
}

// The form of a token in a file, little-endian.
struct StoredToken {
    std::string_view descr;  // in NPY headers
    std::size_t bytes;
    std::int64_t (*token_at)(std::span<const std::byte> stored, std::size_t i);
};
constexpr std::array<StoredToken, 6> stored_tokens{{{"|u1", 1, as_number<std::uint8_t>},
                                                    {"<u1", 1, as_number<std::uint8_t>},
                                                    {"<u2", 2, as_number<std::uint16_t>},
                                                    {"<u4", 4, as_number<std::uint32_t>},
                                                    {"<i4", 4, as_number<std::int32_t>},
                                                    {"<i8", 8, as_number<std::int64_t>}}};

// One file's part of all tokens.
struct TokenRun {
    std::shared_ptr<const InputFile> file;
    const StoredToken* type = nullptr;
    std::uint64_t offset = 0;  // place of its first token in the file
    std::uint64_t tokens = 0;
    std::uint64_t first = 0;  // number of its first token among all
};

class TokenSource : public RowSource {
  public:
    TokenSource(std::vector<TokenRun> runs, std::uint64_t length)
        : runs_(std::move(runs)), length_(length) {
        std::uint64_t all = 0;
        for (TokenRun& run : runs_) {
            run.first = all;
            all += run.tokens;
        }
        check(
            all > length_,
            "E106",
            fmt::format("{} tokens are fewer than one window has", grouped(all)),
            fmt::format(
                "a window of --length {} has {}: the last is only predicted", length_, length_ + 1),
            "give more text, or a smaller --length");
        samples_ = (all - 1) / length_;
        const std::uint64_t rest = all - samples_ * length_ - 1;
        if (rest > 0)
            once(
                Level::info, "the last {} token(s) fill no window and are left out", grouped(rest));
        const bool are_bytes =
            std::ranges::all_of(runs_, [](const TokenRun& run) { return run.type->bytes == 1; });
        fields_ = {{.name = "tokens",
                    .type = are_bytes ? ElementType::u8 : ElementType::i32,
                    .shape = {static_cast<std::int64_t>(length_ + 1)}}};
    }

    void read(std::size_t, std::uint64_t row, std::span<std::byte> out) const override {
        read_tokens(row * length_, out);
    }
    Hash128 fingerprint() const override {
        Hasher128 hasher;
        hasher.add(bytes_of(fmt::format("tokens {} {}", element_name(fields_[0].type), length_)));
        const std::uint64_t used = samples_ * length_ + 1;
        std::vector<std::byte> piece;
        for (std::uint64_t first = 0; first < used; first += piece_tokens) {
            piece.resize(std::min(piece_tokens, used - first) * token_bytes());
            read_tokens(first, piece);
            hasher.add(piece);
        }
        return hasher.value();
    }

  private:
    void read_tokens(std::uint64_t first, std::span<std::byte> out) const {
        auto run = std::ranges::upper_bound(runs_, first, {}, &TokenRun::first) - 1;
        while (!out.empty()) {
            const std::uint64_t place = first - run->first;
            const std::uint64_t tokens =
                std::min<std::uint64_t>(out.size() / token_bytes(), run->tokens - place);
            read_run(*run, place, out.first(tokens * token_bytes()));
            out = out.subspan(tokens * token_bytes());
            first += tokens;
            ++run;
        }
    }

    void read_run(const TokenRun& run, std::uint64_t place, std::span<std::byte> out) const {
        const std::size_t bytes = run.type->bytes;
        if (fields_[0].type == ElementType::u8) return run.file->read(run.offset + place, out);
        std::vector<std::byte> stored(out.size() / token_bytes() * bytes);
        run.file->read(run.offset + place * bytes, stored);
        // Negative ones that fit stay: packing names their sample.
        for (std::size_t i = 0; i < stored.size() / bytes; ++i) {
            const std::int64_t value = run.type->token_at(stored, i);
            check(std::in_range<std::int32_t>(value), [&] {
                return Error("E210",
                             fmt::format("token {} at place {} of '{}' is out of range",
                                         value,
                                         grouped(place + i),
                                         run.file->path().string()),
                             fmt::format("tokens are whole numbers from 0 to {}",
                                         grouped(std::numeric_limits<std::int32_t>::max())),
                             "check that the file has tokens, and their type");
            });
            const auto token = static_cast<std::int32_t>(value);
            std::memcpy(out.data() + i * sizeof token, &token, sizeof token);
        }
    }

    std::size_t token_bytes() const { return element_bytes(fields_[0].type); }

    std::vector<TokenRun> runs_;
    std::uint64_t length_;
};

std::shared_ptr<const InputFile> open_filled(const fs::path& path) {
    auto file = std::make_shared<const InputFile>(path);
    check(file->bytes() > 0,
          [&] { return malformed_input(path, "a file of tokens", "it is empty"); });
    return file;
}

TokenRun raw_run(const std::shared_ptr<const InputFile>& file, std::string_view descr) {
    const auto type = std::ranges::find(stored_tokens, descr, &StoredToken::descr);
    const std::size_t bytes = type->bytes;
    check(file->bytes() % bytes == 0, [&] {
        return malformed_input(
            file->path(),
            fmt::format("a file of tokens of {} bytes", bytes),
            fmt::format("{} bytes are no whole number of them", grouped(file->bytes())));
    });
    return {.file = file, .type = &*type, .tokens = file->bytes() / bytes};
}

TokenRun npy_run(const std::shared_ptr<const InputFile>& file) {
    const NpyLayout layout = read_npy_layout(*file);
    const auto type = std::ranges::find(stored_tokens, layout.descr, &StoredToken::descr);
    check(type != stored_tokens.end(), [&] {
        return malformed_input(
            file->path(),
            "an NPY file of tokens",
            fmt::format("its type is '{}'; u1, u2, u4, i4 and i8, little-endian, can be packed",
                        layout.descr),
            "convert it: " + rewrite_npy_command(file->path(), "x.astype(\"<i8\")"));
    });
    check(layout.shape.size() == 1, [&] {
        return malformed_input(
            file->path(),
            "an NPY file of tokens",
            fmt::format("it has {} dimensions; tokens are one row", layout.shape.size()),
            "join its rows: " + rewrite_npy_command(file->path(), "x.ravel()"));
    });
    check_npy_bytes(*file, layout, type->bytes);
    return {.file = file, .type = &*type, .offset = layout.data_offset, .tokens = layout.shape[0]};
}

TokenRun token_run(const fs::path& path, RawTokens raw) {
    const auto file = open_filled(path);
    const bool has_header = is_npy(*file);
    check(has_header || raw != RawTokens::none,
          "E105",
          fmt::format("the type of tokens in '{}' is not given", path.string()),
          "it is not an NPY file, which contains the type",
          "give --token-type u16 or u32 (nanoGPT's .bin files have u16)");
    check(!has_header || raw == RawTokens::none,
          "E106",
          fmt::format("--token-type does not go with '{}'", path.string()),
          "it is an NPY file, which contains its type",
          "drop --token-type, or pack raw files alone");
    if (has_header) return npy_run(file);
    return raw_run(file, raw == RawTokens::u16 ? "<u2" : "<u4");
}

}  // namespace

std::unique_ptr<RowSource> open_text(const std::vector<fs::path>& files, std::uint64_t length) {
    std::vector<TokenRun> runs;
    for (const fs::path& path : files) runs.push_back(raw_run(open_filled(path), "|u1"));
    return std::make_unique<TokenSource>(std::move(runs), length);
}

std::unique_ptr<RowSource> open_tokens(const std::vector<fs::path>& files,
                                       std::uint64_t length,
                                       RawTokens raw) {
    std::vector<TokenRun> runs;
    for (const fs::path& path : files) runs.push_back(token_run(path, raw));
    return std::make_unique<TokenSource>(std::move(runs), length);
}

}  // namespace lockstep
