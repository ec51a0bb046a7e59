// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sources of rows for `pack`: the inputs from which a data set can be packed.
#pragma once

#include "lockstep/core/hash.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Samples with named fields, in the order of the input. Several threads may access them at random,
/// in bounded memory: rows are read, decoded or generated on request.
class RowSource {
  public:
    virtual ~RowSource() = default;

    std::uint64_t samples() const { return samples_; }  ///< number of rows for read()

    /// Returns name, type, shape and layout of each field, and the names of classes if the input
    /// has them; statistics are empty, unless they are known to be right.
    const std::vector<Field>& fields() const { return fields_; }

    /// Returns the order of the rows; it becomes a manifest's row_order unless they are shuffled.
    virtual std::string row_order() const { return "source"; }

    /// Fills `out`, of the field's bytes_per_sample(), with row `row` of field number `field`,
    /// little-endian. Several threads may call it at the same time. Errors: those of the format,
    /// naming the input.
    virtual void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const = 0;

    /// Returns what the input calls row `row`, such as a file's name; "" if it has no name for it.
    virtual std::string row_name([[maybe_unused]] std::uint64_t row) const { return ""; }

    /// Returns a hash of the input's content, which may require reading all of it; equal inputs
    /// give equal data sets.
    virtual Hash128 fingerprint() const = 0;

  protected:
    /// A constructor that knows them later sets the members itself.
    explicit RowSource(std::uint64_t samples = 0, std::vector<Field> fields = {})
        : samples_(samples), fields_(std::move(fields)) {}

    std::uint64_t samples_;
    std::vector<Field> fields_;
};

/// The progress of opening an input, in bytes (`total` 0: unknown). An exception cancels.
using ReadReport = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// The colours of packed images.
enum class Color { as_first, rgb, gray };

/// A size in pixels.
struct ImageSize {
    std::uint32_t height = 0;  ///< rows
    std::uint32_t width = 0;   ///< columns
    bool operator==(const ImageSize&) const = default;
};

/// Size and colours of images that are decoded.
struct ImageFit {
    Color color = Color::as_first;         ///< as_first: like the first image
    std::optional<ImageSize> resize = {};  ///< unset: all images must have one size
};

/// Settings of inputs whose rows cannot be read at random: opening reads them once, from begin to
/// end, into a nameless file in the system's temporary folder, which ends with the source.
struct SourceOptions {
    ReadReport report{};
    Links links = Links::refused;   ///< rule for links of HDF5 files
    ImageFit images = {};           ///< of encoded images in HDF5 files
    bool is_sample_a_file = false;  ///< each HDF5 file holds one sample, without a first dimension
    /// Largest piece when reading a field of HDF5 files, in this process and its child.
    std::uint64_t memory_bytes = std::uint64_t{4} << 30;
};

/// A field and its place: "images=/data/x".
struct NamedInput {
    std::string field;  ///< "images"
    std::string place;  ///< "/data/x": a path in a file, or the path of a file
};

/// Parses NAME=PLACE, with a name of letters, digits, '_' and '-'. Errors: E103.
NamedInput parse_named_input(const std::string& option, std::string_view text);

/// IDX files (http://yann.lecun.com/exdb/mnist/): `images` as u8 [C,H,W] (C = 1 for three
/// dimensions) and `labels` as i64. Gzip files are expanded first. Images of three
/// dimensions are taken for CHW where `layout` is unstated. Errors: E201, E202, E214 (malformed),
/// E209 (counts), E235, as open_npy().
std::unique_ptr<RowSource> open_idx(const fs::path& images,
                                    const fs::path& labels,
                                    const SourceOptions& options = {},
                                    ImageLayout layout = ImageLayout::unstated);

/// Opens one NPY file (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html,
/// versions 1 to 3) per field: whole numbers, floats of 16 to 64 bits and truth values, in either
/// byte order, converted as for HDF5; C order; the first dimension is the sample. `images` become
/// [C,H,W]; `labels` become i64. A place ARCHIVE.npz:NAME is an array of NumPy's archive, deflated
/// or not, which is expanded first. Errors: E201, E202, E214, E209, E106; E235 if
/// images of two dimensions have a layout of three.
std::unique_ptr<RowSource> open_npy(const std::vector<NamedInput>& inputs,
                                    ImageLayout layout = ImageLayout::unstated,
                                    const SourceOptions& options = {});

/// Opens `images` and `labels` from two files, both IDX or both NPY, by their first bytes.
std::unique_ptr<RowSource> open_images(const fs::path& images,
                                       const fs::path& labels,
                                       ImageLayout layout,
                                       const SourceOptions& options = {});

/// Opens CIFAR-10's binary version (https://www.cs.toronto.edu/~kriz/cifar.html): files, or the
/// folder with data_batch_*.bin (any split but "test") and test_batch.bin. Names of classes come
/// from batches.meta.txt next to them. Errors: E201, E202, E214.
std::unique_ptr<RowSource> open_cifar10(const std::vector<fs::path>& inputs,
                                        const std::string& split);

/// Opens CIFAR-100: files, or the folder with train.bin and test.bin. `labels` are the 100 fine
/// classes, `coarse_labels` the 20 coarse ones; names come from fine_label_names.txt and
/// coarse_label_names.txt.
std::unique_ptr<RowSource> open_cifar100(const std::vector<fs::path>& inputs,
                                         const std::string& split);

/// Tells whether the first line of a CSV file names its columns.
enum class Header { guess, yes, no };

/// Roles of a CSV file's columns, and the meaning of their cells. Columns are given by name, or by
/// number from 1.
struct CsvOptions {
    std::string label{};  ///< column of classes: whole numbers, or names (numbered as they sort)
    /// Columns of numbers to predict; they and a label exclude each other. One is `targets` of
    /// scalars, several are [K].
    std::vector<std::string> targets = {};
    std::vector<std::string> drop = {};         ///< columns to leave out
    std::vector<std::string> categorical = {};  ///< columns of texts: a number for each of them
    Header header = Header::guess;  ///< guess: yes if it has a column and none is a number
    char separator = ',';           ///< between columns
    DecimalSign decimal = DecimalSign::point;
    ElementType type = ElementType::f32;  ///< type of features and target: f32 or f64
    std::string encoding = {};         ///< iconv's name of the encoding; "": bytes stay unchanged
    Missing missing = Missing::error;  ///< of features; with `drop`, of label and targets, too
    /// Field of training data whose columns, categories and fills these are; other columns are left
    /// out. A table without a header has these columns alone, or all of the training table.
    std::optional<Field> like = {};
    std::string row_names = {};  ///< column of row_name(); "": none
};

/// The type of tokens in files without a header, little-endian; `none`: all files have a header.
enum class RawTokens { none, u16, u32 };

/// Opens texts in which each byte is a token: `tokens` u8 [length + 1]. The files are joined in the
/// order given; sample k has tokens [k length, k length + length], so that neighbours share one. A
/// rest that does not fill a sample is left out. Errors: E106 (less than one sample), E201, E202,
/// E214 (an empty file), E402.
std::unique_ptr<RowSource> open_text(const std::vector<fs::path>& files, std::uint64_t length);

/// Opens existing tokens in the same way: NPY files of one dimension (u8, u16, u32, i32, i64), or
/// raw ones. All u8 stay u8, others become i32. Errors: also E105, E106 (`raw` is missing, or does
/// not match the files); E210 on reading a token that exceeds i32.
std::unique_ptr<RowSource> open_tokens(const std::vector<fs::path>& files,
                                       std::uint64_t length,
                                       RawTokens raw = RawTokens::none);

/// Opens CSV by RFC 4180: `features` [columns] and `labels` (i64) or `targets`. Lines tell which
/// cells were filled, which records left out, and the categories. Errors: E201, E202, E214 and E239
/// (a cell is no number, or no known category), naming line and column; E103 (no such encoding),
/// E106 (no such column, or one of two roles).
std::unique_ptr<RowSource> open_csv(const fs::path& path,
                                    const CsvOptions& csv,
                                    const SourceOptions& options = {});

/// Opens data sets of HDF5 files, one per field, files in the order given. Forms that a stream
/// reads are read with the same decoders; others through libhdf5 in a child process, so that every
/// layout and filter that it knows can be read. Types are converted: whole numbers of up to 8 bits
/// without sign to u8, others to i32 or i64, floating-point ones to f32 or f64; labels to i64, also
/// from texts, enumerations and one-hot rows, as DatasetIndex::open_foreign() does. `images` that
/// are lists of bytes are decoded as open_folder() does. A field's own layout overrides `layout`.
/// Errors: E201 to E205, E207, E208, E209, E210 (labels), E213 (cannot be read), E214, E231 to
/// E233, E235 (a layout that does not match the field's name), E405.
std::unique_ptr<RowSource> open_hdf5(const std::vector<fs::path>& files,
                                     const std::vector<FieldMapping>& fields,
                                     ImageLayout layout = ImageLayout::unstated,
                                     const SourceOptions& options = {});

/// What a folder of images has. classes: one sub-folder for each class. images: images, in it or in
/// sub-folders, without labels.
enum class FolderContent { classes, images };

/// Conversion of a folder's images to rows.
struct FolderOptions {
    FolderContent content = FolderContent::classes;
    ImageFit images = {};
    /// The pixels of masks that are class 0, 1 and so on. Empty: pixels are class numbers.
    std::vector<std::uint8_t> mask_values = {};
};

/// Opens images in one sub-folder per class; classes and images are numbered in the order of their
/// names, byte by byte. PNG and PNM (P5, P6) of up to 8 bits, JPEG; the content decides the format.
/// Files are decoded each time they are read. Resizing averages (a triangle filter) as Pillow's
/// BILINEAR does, bit for bit. Transparency is dropped; CMYK and 16 bits are refused. Of
/// FolderContent::images, `folder` may be one image. Errors: E201, E202, E214; E237 (an image
/// cannot be decoded), E238 (sizes differ), naming it.
std::unique_ptr<RowSource> open_folder(const fs::path& folder, const FolderOptions& options = {});

/// Returns true if a folder's images are read from files of such a name.
bool is_image_name(const fs::path& file);

/// Opens images as `images`, of `folder` and its sub-folders, and their masks as `masks` u8 [H,W]:
/// files below `masks` of the same names without ending, or with "_mask" after it. Masks are PNG,
/// TIFF or PGM of one channel: grey numbers or indices of a palette, as they are. They are resized
/// by nearest pixels. Errors: those of open_folder(); E214 names an image without mask or a mask
/// without image, E237 and E238 a mask with colours or of another size, E210 a pixel that is not in
/// `options.mask_values`.
std::unique_ptr<RowSource> open_masked_folder(const fs::path& folder,
                                              const fs::path& masks,
                                              const FolderOptions& options = {});

/// Parses "0,255" for FolderOptions. Errors: E103.
std::vector<std::uint8_t> parse_mask_values(std::string_view text);

/// Parses "224x192" (height x width). Errors: E103.
ImageSize parse_image_size(const std::string& option, std::string_view text);

/// classes: `images` u8 [3,size,size] and `labels`: a pattern per class, moved about, its contrast
/// changed, under noise. segmentation: `images` u8 [3,size,size] and `masks` u8 [size,size]: discs
/// and squares of a colour per class, 0 is the ground. regression: `features` f32 [size] and
/// `targets` f32 of a fixed quadratic function of them, with noise. text: `tokens` u8 [size + 1] of
/// a fixed chain in which one or two tokens decide most of the next.
enum class SynthKind { classes, segmentation, regression, text };

/// What is made up, and how much of it.
struct SynthOptions {
    SynthKind kind = SynthKind::classes;  ///< of data
    std::uint64_t seed = 0;               ///< another one, other data
    std::uint64_t samples = 10'000;       ///< how many
    std::uint64_t first = 0;              ///< number of the first sample: others are others
    std::uint32_t size = 32;     ///< height and width, 8 to 4096; features or tokens, 1 to 65536
    std::uint32_t classes = 10;  ///< 2 to 255; of text the vocabulary; not for regression
};

/// Every byte is a function of (kind, seed, size, classes, sample) in whole numbers: the same on
/// any machine. Errors: E102.
std::unique_ptr<RowSource> make_synthetic(const SynthOptions& options);

/// The shape of generated images that compress like real ones.
struct ScratchShape {
    std::uint64_t samples = 0;                      ///< number of samples
    std::vector<std::int64_t> image = {3, 64, 64};  ///< C, H, W
    std::int64_t classes = 10;                      ///< classes of the labels
};

/// Makes `images` u8 and `labels` i64, the same for equal shapes: smooth shapes on a black ground
/// with noise in the lower bits. Deflate makes them about 1.3 times smaller, lz4 1.2 times, like
/// photographs of that size. Different images fill 32 MiB; then they repeat.
std::unique_ptr<RowSource> scratch_rows(const ScratchShape& shape);

}  // namespace lockstep
