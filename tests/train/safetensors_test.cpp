// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "support/temp_dir.hpp"

namespace lockstep {
namespace {

struct Written {
    test::TempDir folder;
    fs::path path = folder.path() / "a.safetensors";
    std::vector<float> first = {1, 2, 3, 4, 5, 6}, second = {7};

    Written() {
        SafetensorsEntry entries[] = {{.name = "w", .shape = {2, 3}, .values = first},
                                      {.name = "b[0:1]", .shape = {1}, .values = second}};
        write_safetensors(path, entries);
    }
};

void write_raw(const fs::path& path, const std::string& header, std::size_t data_bytes) {
    std::ofstream out(path, std::ios::binary);
    const std::uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << header << std::string(data_bytes, '\0');
}

std::string code_of(const fs::path& path) {
    try {
        read_safetensors_header(path);
    } catch (const Error& error) {
        return error.code();
    }
    return "";
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
    const Written written;
    const auto entries = read_safetensors_header(written.path);
    ASSERT_EQ(entries.size(), 2U);
    EXPECT_EQ(entries[0].name, "w");
    EXPECT_EQ(entries[0].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(entries[0].offset % 64, 0U);
    const std::string bytes = read_file(written.path);
    EXPECT_EQ(std::memcmp(bytes.data() + entries[0].offset, written.first.data(), 24), 0);
    EXPECT_EQ(std::memcmp(bytes.data() + entries[1].offset, written.second.data(), 4), 0);
}

TEST(Safetensors, RefusesToReplaceAFile) {
    const Written written;
    SafetensorsEntry entry{.name = "w", .shape = {1}, .values = written.second};
    EXPECT_THROW(write_safetensors(written.path, std::span(&entry, 1)), Error);
}

TEST(Safetensors, RefusesATruncationAnywhere) {
    const Written written;
    const std::string whole = read_file(written.path);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 5) {
        fs::resize_file(written.path, bytes);
        EXPECT_FALSE(code_of(written.path).empty()) << bytes;
        std::ofstream(written.path, std::ios::binary) << whole;
    }
}

TEST(Safetensors, RefusesMaliciousHeaders) {
    const test::TempDir folder;
    const fs::path path = folder.path() / "evil.safetensors";
    const char* headers[] = {
        R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
        R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
        R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
        R"({"w":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
        R"({"w":)",
    };
    for (const char* header : headers) {
        write_raw(path, header, 4);
        const std::string code = code_of(path);
        EXPECT_TRUE(code == "E309" || code == "E222") << header << " gave '" << code << "'";
    }
    std::ofstream(path, std::ios::binary) << "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
    EXPECT_EQ(code_of(path), "E309");
}

}  // namespace
}  // namespace lockstep
