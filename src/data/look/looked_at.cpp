// SPDX-License-Identifier: Apache-2.0
#include "looked_at.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "hdf5/look.hpp"
#include "hdf5/shard_probe.hpp"
#include "hdf5/stored_blocks.hpp"
#include "opening/foreign.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string filters_text(const DatasetFacts& facts) {
    std::string text;
    for (const FilterFacts& filter : facts.filters)
        text += ", " + (is_known_filter(filter.kind)
                            ? filter_text({{static_cast<FilterKind>(filter.kind)}})
                            : "filter " + filter_name(filter.kind));
    return text;
}

std::string storage_text(const DatasetFacts& facts) {
    switch (facts.layout) {
        case StorageLayout::contiguous:
            return "contiguous";
        case StorageLayout::chunked:
            return fmt::format("chunks [{}]{}", fmt::join(facts.chunk, ", "), filters_text(facts));
        case StorageLayout::elsewhere:
        case StorageLayout::linked:
            return "in other files";
        case StorageLayout::missing:
        case StorageLayout::other:
            break;
    }
    return "";
}

LookedAt looked_at(const Candidate& candidate, const fs::path& file) {
    LookedAt seen{.name = candidate.name,
                  .type = candidate.facts.type_text,
                  .size = candidate.facts.size,
                  .storage = storage_text(candidate.facts),
                  .obstacle = candidate.obstacle};
    if (!seen.obstacle.empty() || candidate.facts.is_text) return seen;
    const std::vector<FieldMapping> field{{"field", candidate.name, RowLayout::value}};
    try {
        seen.index = std::make_shared<const DatasetIndex>(ForeignOpening({file}, field).open_all());
    } catch (const Error& error) {
        seen.obstacle = error.what();
    }
    return seen;
}

// Whether a folder has just these.
bool files_like(const fs::path& folder, const std::vector<fs::path>& files) {
    try {
        const std::vector<fs::path> all = foreign_files(folder);
        return std::ranges::equal(all, files, [](const fs::path& a, const fs::path& b) {
            return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
        });
    } catch (const Error&) {
        return false;
    }
}

// As --data: what was given, or the folder that has just these files, where a shell named them all.
fs::path data_of(const fs::path& where, const std::vector<fs::path>& files) {
    if (files.size() < 2 || where.native().find(',') == fs::path::string_type::npos) return where;
    const fs::path folder = files[0].parent_path().empty() ? "." : files[0].parent_path();
    std::vector<fs::path> sorted = files;
    std::ranges::sort(sorted);
    return files_like(folder, sorted) ? folder : where;
}

std::string run_option(const fs::path& place) {
    const std::string name = place.stem().string();
    const bool is_name = !name.empty() && name.find_first_of("*?[,") == name.npos;
    return " --run " + shell_word("runs/" + (is_name ? name : "first"));
}

LookedAtPlace look_at_files(const fs::path& where) {
    const std::vector<fs::path> files = foreign_files(where);
    check_is_whole_hdf5(files[0], 0);
    LookedAtPlace seen{
        .title = fmt::format("{}, {}", files[0].string(), bytes_text(fs::file_size(files[0])))};
    if (files.size() > 1)
        seen.title += fmt::format(", the first of {} files", grouped(files.size()));
    seen.candidates = candidates_of(files[0]);
    for (const Candidate& candidate : seen.candidates)
        seen.all.push_back(looked_at(candidate, files[0]));
    seen.is_cut_off = seen.candidates.size() >= most_listed;
    seen.others = compare_files(seen.candidates, std::span(files).subspan(1));
    seen.fields = suggested_mappings(seen.candidates);
    seen.data = data_of(where, files);
    seen.run_option = run_option(seen.data);
    return seen;
}

LookedAtPlace look_at_packed(const fs::path& folder) {
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open(folder));
    const Manifest& manifest = index->manifest();
    std::uint64_t bytes = 0;
    for (const Shard& shard : index->shards()) bytes += shard.bytes;
    LookedAtPlace seen{.title = fmt::format("{}, {} in {} shard(s) that 'lockstep data pack' made",
                                            folder.string(),
                                            bytes_text(bytes),
                                            grouped(index->shards().size())),
                       .is_packed = true,
                       .data = folder,
                       .run_option = run_option(folder)};
    for (std::size_t f = 0; f < index->fields().size(); ++f) {
        const Field& field = index->fields()[f];
        LookedAt each{
            .name = field.name,
            .type = std::string(element_name(field.type)),
            .size = {index->samples()},
            .storage = fmt::format(
                "blocks of {} rows, {}", grouped(manifest.block_rows), codec_name(manifest.codec)),
            .obstacle = "",
            .index = index,
            .field = f};
        each.size.insert(each.size.end(), field.shape.begin(), field.shape.end());
        seen.all.push_back(std::move(each));
    }
    return seen;
}

}  // namespace

LookedAtPlace look_at_place(const fs::path& where) {
    return is_packed(where) ? look_at_packed(where) : look_at_files(where);
}

}  // namespace lockstep
