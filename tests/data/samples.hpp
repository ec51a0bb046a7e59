// SPDX-License-Identifier: Apache-2.0
// Small made-up data sets: IDX files, what is in them, and what they become when packed.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sources.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

namespace lockstep::test {

/// Images and labels before they are written anywhere.
struct Samples {
    std::uint32_t channels = 1, height = 4, width = 4;
    std::vector<std::string> images;
    std::vector<std::uint8_t> labels;

    std::uint64_t count() const { return images.size(); }
};

/// Each image differs from the others; about half of its pixels are zero, so that it compresses.
inline Samples make_samples(std::uint64_t count,
                            std::uint64_t seed = 1,
                            Samples shape = {},
                            std::uint8_t classes = 10) {
    CounterRandom random(Purpose::test, {seed});
    for (std::uint64_t i = 0; i < count; ++i) {
        std::string image(shape.channels * shape.height * shape.width, '\0');
        for (char& pixel : image)
            if (random.below(2) == 1) pixel = static_cast<char>(random.below(256));
        shape.images.push_back(std::move(image));
        shape.labels.push_back(static_cast<std::uint8_t>(i < classes ? i : random.below(classes)));
    }
    return shape;
}

/// An IDX file's content.
inline std::string idx_text(const std::vector<std::uint32_t>& sizes, const std::string& bytes) {
    std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
    for (const std::uint32_t size : sizes)
        for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
    return text + bytes;
}

inline std::string images_text(const Samples& samples) {
    std::string bytes;
    for (const std::string& image : samples.images) bytes += image;
    const auto count = static_cast<std::uint32_t>(samples.count());
    if (samples.channels == 1) return idx_text({count, samples.height, samples.width}, bytes);
    return idx_text({count, samples.channels, samples.height, samples.width}, bytes);
}

inline std::string labels_text(const Samples& samples) {
    return idx_text({static_cast<std::uint32_t>(samples.count())},
                    std::string(samples.labels.begin(), samples.labels.end()));
}

inline void write_gzip(const fs::path& path, const std::string& content) {
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
}

/// A pack of IDX files.
struct IdxPack : PackOptions {
    fs::path images, labels;
};

inline PackResult pack_dataset(const IdxPack& options, const PackReport& report = {}) {
    const auto source = together(options.team, [&] {
        check_is_free(options.output);
        return open_idx(options.images, options.labels);
    });
    return lockstep::pack_dataset(*source, options, report);
}

/// Ends a pack at `stage`, once so many are done.
inline PackReport ending_at(std::string_view stage, std::uint64_t done = 0) {
    return [=](const PackProgress& at) {
        if (at.stage == stage && at.done >= done) throw std::runtime_error("enough");
    };
}

/// The options that pack `samples`, written to `folder`, into `folder`/name.
inline IdxPack options_for(const TempDir& folder,
                           const Samples& samples,
                           const std::string& name,
                           Codec codec = Codec::none) {
    IdxPack options;
    options.images = folder.file(name + "-images.idx", images_text(samples));
    options.labels = folder.file(name + "-labels.idx", labels_text(samples));
    options.output = folder / name;
    options.codec = codec;
    options.block_rows = 16;
    return options;
}

/// The rows of the packed data set, as numbers of `samples`.
inline std::vector<std::uint64_t> packed_order(std::uint64_t count, const PackOptions& options) {
    std::vector<std::uint64_t> rows(count);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    if (options.shuffle_seed)
        shuffle(std::span(rows), CounterRandom(Purpose::pack_order, {*options.shuffle_seed}));
    return rows;
}

inline std::shared_ptr<const DatasetIndex> open_index(const fs::path& folder) {
    return std::make_shared<const DatasetIndex>(DatasetIndex::open(folder));
}

/// Packs anew, and opens what was made.
inline std::shared_ptr<const DatasetIndex> packed(const IdxPack& options) {
    fs::remove_all(options.output);
    pack_dataset(options);
    return open_index(options.output);
}

/// One sample as a stream delivers it.
struct Delivered {
    std::string image;
    std::int64_t label = -1;
    bool operator==(const Delivered&) const = default;
};

inline Delivered delivered(const Batch& batch, std::size_t row) {
    const std::size_t bytes = batch.fields[0].size() / batch.sample_ids.size();
    Delivered sample;
    sample.image.assign(reinterpret_cast<const char*>(batch.fields[0].data()) + row * bytes, bytes);
    std::memcpy(&sample.label, batch.fields[1].data() + row * sizeof sample.label, 8);
    return sample;
}

/// Every sample of a data set by its global number, through one epoch of a stream.
inline std::map<std::uint64_t, Delivered> read_all(std::shared_ptr<const DatasetIndex> index,
                                                   StreamOptions options = {}) {
    BatchStream stream(std::move(index), options);
    std::map<std::uint64_t, Delivered> all;
    for (;;) {
        const Batch batch = stream.next();
        for (std::size_t row = 0; row < batch.sample_ids.size(); ++row)
            all[batch.sample_ids[row]] = delivered(batch, row);
        if (batch.next.epoch > batch.position.epoch) return all;
    }
}

/// All rows of field number `field`, in stored order, through a stream.
inline std::vector<std::byte> streamed(const DatasetIndex& index, std::size_t field) {
    BatchStream stream(std::make_shared<const DatasetIndex>(index),
                       {.order = OrderKind::sequential, .batch = 13});
    std::vector<std::byte> rows;
    for (;;) {
        const Batch batch = stream.next();
        rows.insert(rows.end(), batch.fields[field].begin(), batch.fields[field].end());
        if (batch.next.epoch > 0) return rows;
    }
}

/// The error of opening files of others, of code "none" where they open.
inline Error error_of_opening(const std::vector<fs::path>& files,
                              const std::vector<FieldMapping>& fields) {
    return error_of([&] { DatasetIndex::open_foreign(files, fields); });
}

/// What read_all() should give.
inline std::map<std::uint64_t, Delivered> expected_content(const Samples& samples,
                                                           const PackOptions& options) {
    const std::vector<std::uint64_t> rows = packed_order(samples.count(), options);
    std::map<std::uint64_t, Delivered> all;
    for (std::uint64_t row = 0; row < rows.size(); ++row)
        all[row] = {samples.images[rows[row]], samples.labels[rows[row]]};
    return all;
}

/// Four lanes, windows of two blocks, 24 samples in a step.
inline StreamOptions small_stream() {
    return {.seed = 11, .lanes = 4, .window_blocks = 2, .batch = 24};
}

/// Changes bytes of a file in place.
inline void overwrite(const fs::path& path, std::uint64_t offset, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
}

/// Changes bytes in the middle of a stored block.
inline void damage_block(const DatasetIndex& index, std::size_t field, std::size_t number) {
    const StoredBlock& block = index.stored_blocks(field)[number];
    overwrite(index.path() / index.shards()[block.shard].name,
              block.offset + block.stored_bytes / 2,
              "!damage!");
}

/// The manifest with `change` applied to its JSON, sealed again.
template <class Change>
void rewrite_manifest(const fs::path& folder, Change&& change) {
    Json json = read_json(folder / manifest_name);
    json.erase("digest");
    change(json);
    std::string text = json.dump(2);
    text.resize(text.rfind("\n}"));
    std::ofstream(folder / manifest_name, std::ios::binary) << sealed(text);
}

}  // namespace lockstep::test
