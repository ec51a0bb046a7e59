// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exact_words.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/transform.hpp"

#include "nccl/cuda_api.hpp"
#include "nccl/nccl_api.hpp"
#include "selftest.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Values in the memory of the GPU.
template <class T>
struct GpuValues {
    CudaMemory memory;
    T* data() const { return static_cast<T*>(memory.value()); }
};

CudaLibrary cuda_on_first_gpu() {
    CudaLibrary cuda = load_cuda();
    check_cuda(cuda.api, cuda.api.set_device(0), "cudaSetDevice");
    return cuda;
}

/// liblockstep_cuda.so's kernels on a stream of their own, of the first GPU. NCCL is not needed.
class KernelGpu {
  public:
    template <class T>
    GpuValues<T> room(std::size_t count) const {
        return {make_memory(runtime_, std::max<std::size_t>(count * sizeof(T), 1))};
    }

    template <class T>
    GpuValues<T> copy_of(std::span<const T> values) const {
        GpuValues<T> copied = room<T>(values.size());
        stream_.copy(copied.data(), values.data(), values.size_bytes());
        stream_.wait();
        return copied;
    }

    template <class T>
    std::vector<T> values(const GpuValues<T>& memory, std::size_t count) const {
        std::vector<T> values(count);
        stream_.copy(values.data(), memory.data(), count * sizeof(T));
        stream_.wait();
        return values;
    }

    /// Calls the entry point, with the stream as its last argument.
    template <class EntryPoint, class... Arguments>
    void run(const char* name, Arguments... arguments) const {
        void* const entry = cuda_.library.symbol(name);
        check(entry != nullptr,
              "E670",
              fmt::format("'{}' has no function {}", cuda_.path, name),
              "it was built without Lockstep's kernels",
              "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
        const int status = reinterpret_cast<EntryPoint>(entry)(arguments..., stream_.stream());
        check_cuda(cuda_.api, status, name);
    }

  private:
    const CudaLibrary cuda_ = cuda_on_first_gpu();
    const std::shared_ptr<GpuRuntime> runtime_ = std::make_shared<GpuRuntime>(
        std::make_unique<NcclApi>(), std::make_unique<CudaApi>(cuda_.api), "");
    const Caller stream_{runtime_};
};

constexpr std::size_t images_of_check = 37;

struct Case {
    const char* pipeline;
    ImageShape shape;
    PixelLayout layout;
    std::vector<std::uint8_t> images;
    std::vector<std::uint64_t> ids;
};

Case make_case(const char* pipeline, const ImageShape& shape, PixelLayout layout) {
    Case test{pipeline, shape, layout, {}, std::vector<std::uint64_t>(images_of_check)};
    test.images.resize(images_of_check * shape.values());
    CounterRandom random(Purpose::test, {shape.values()});
    for (std::uint8_t& byte : test.images) byte = static_cast<std::uint8_t>(random.below(256));
    std::iota(test.ids.begin(), test.ids.end(), 5u);
    return test;
}

void check_bits(const Case& test,
                const std::vector<float>& gpu,
                const std::vector<float>& cpu,
                const char* what) {
    for (std::size_t i = 0; i < cpu.size(); ++i)
        check(std::memcmp(&gpu[i], &cpu[i], sizeof(float)) == 0, [&] {
            return Error("E679",
                         fmt::format("{} by '{}': value {} of {} is {} on the GPU, {} on the CPU",
                                     what,
                                     test.pipeline,
                                     i,
                                     cpu.size(),
                                     gpu[i],
                                     cpu[i]),
                         "both run one source and must give the same bits",
                         "please report it with the GPU's name and driver");
        });
}

std::vector<float> transform_on(const KernelGpu& gpu,
                                const Case& test,
                                const ImageTransform& transform,
                                TransformKey key) {
    const std::size_t scratch = transform.scratch_values(images_of_check);
    const std::size_t values = images_of_check * transform.output().values();
    const auto images = gpu.copy_of(std::span<const std::uint8_t>(test.images));
    const std::vector<StageDraw> host_draws = transform.draw(test.ids, key);
    const auto draws = gpu.copy_of(std::span<const StageDraw>(host_draws));
    const auto mean = gpu.copy_of(transform.mean()), scale = gpu.copy_of(transform.scale());
    const auto first = gpu.room<float>(scratch), second = gpu.room<float>(scratch);
    const auto out = gpu.room<float>(values);
    const std::vector<StageLaunch> launches = plan_launches(transform,
                                                            {.bytes = images.data(),
                                                             .out = out.data(),
                                                             .draws = draws.data(),
                                                             .mean = mean.data(),
                                                             .scale = scale.data(),
                                                             .layout = test.layout,
                                                             .images = images_of_check},
                                                            {first.data(), second.data()});
    gpu.run<TransformEntryPoint>(
        transform_entry_point, launches.data(), static_cast<int>(launches.size()));
    return gpu.values(out, values);
}

void check_mix(const KernelGpu& gpu,
               const Case& test,
               const ImageTransform& transform,
               TransformKey key,
               std::vector<float> images) {
    const std::vector<MixRow> host_rows = transform.mix_rows(test.ids, key);
    if (host_rows.empty()) return;
    const auto in = gpu.copy_of(std::span<const float>(images));
    const auto rows = gpu.copy_of(std::span<const MixRow>(host_rows));
    const auto out = gpu.room<float>(images.size());
    const ImageShape& shape = transform.output();
    const MixLaunch launch{in.data(),
                           out.data(),
                           rows.data(),
                           shape.channels,
                           shape.height,
                           shape.width,
                           test.layout,
                           images_of_check};
    gpu.run<MixEntryPoint>(mix_entry_point, &launch);
    const std::vector<float> mixed = gpu.values(out, images.size());
    transform.mix(images, host_rows, test.layout);
    check_bits(test, mixed, images, "mixing");
}

void check_case(const KernelGpu& gpu, const Case& test) {
    constexpr TransformKey key{3, 4};
    const std::vector<double> mean(static_cast<std::size_t>(test.shape.channels), 0.45);
    const std::vector<double> std(static_cast<std::size_t>(test.shape.channels), 0.23);
    const ImageTransform transform(TransformPipeline::parse(test.pipeline), test.shape, mean, std);
    std::vector<float> expected(images_of_check * transform.output().values());
    transform.apply(test.images, test.ids, key, test.layout, expected);
    check_bits(test, transform_on(gpu, test, transform, key), expected, "transforming");
    check_mix(gpu, test, transform, key, expected);
}

/// Returns floats of all exponents, without infinities and NaN.
std::vector<float> any_floats(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::uint32_t>(mix64(i));
        const std::uint32_t exponent = (bits >> 23 & 0xff) % 0xff;
        values[i] = std::bit_cast<float>((bits & 0x807fffffU) | exponent << 23);
    }
    return values;
}

using Words = std::vector<std::int64_t>;

/// In two launches that add to the same words.
Words words_on(const KernelGpu& gpu, std::span<const float> values) {
    const Words zeros(exact::words);
    const auto floats = gpu.copy_of(values);
    const auto words = gpu.copy_of(std::span<const std::int64_t>(zeros));
    const auto count = static_cast<std::int64_t>(values.size()), cut = count / 3;
    for (const exact::SquaresLaunch& launch :
         {exact::SquaresLaunch{floats.data(), cut, words.data()},
          exact::SquaresLaunch{floats.data() + cut, count - cut, words.data()}})
        gpu.run<exact::SquaresEntryPoint>(exact::squares_entry_point, &launch);
    Words found = gpu.values(words, exact::words);
    exact::carry(found.data());
    return found;
}

// By words: ExactSum itself comes with MPI.
void check_sum(const KernelGpu& gpu, std::span<const float> values) {
    Words expected(exact::words);
    for (const float value : values) {
        exact::add_square(expected.data(), value);
        exact::carry(expected.data());
    }
    check(words_on(gpu, values) == expected,
          "E679",
          fmt::format("the squares of {} floats have another sum on the GPU than on the CPU",
                      values.size()),
          "both run one source and must give the same bits",
          "please report it with the GPU's name and driver");
}

}  // namespace

std::string check_transforms() {
    const KernelGpu gpu;
    int done = 0;
    for (const PixelLayout layout : {PixelLayout::nchw, PixelLayout::nhwc})
        for (const auto& [pipeline, shape] :
             {std::pair{"none", ImageShape{1, 28, 28}},
              std::pair{"cifar", ImageShape{3, 32, 32}},
              std::pair{"resize 40x23", ImageShape{3, 32, 32}},
              std::pair{"rotate 180", ImageShape{3, 31, 32}},
              std::pair{"blur 9", ImageShape{4, 32, 30}},
              std::pair{"crop 30 pad 2, cutout 8, flip, rotate 20, blur 3, mixup 0.4",
                        ImageShape{3, 32, 32}},
              std::pair{"centre-crop 20, cutmix 1", ImageShape{1, 28, 28}},
              std::pair{"book", ImageShape{3, 32, 32}}}) {
            check_case(gpu, make_case(pipeline, shape, layout));
            ++done;
        }
    return fmt::format(
        "{} pipelines over {} images each, the bits of the CPU", done, images_of_check);
}

std::string check_norms() {
    const KernelGpu gpu;
    int done = 0;
    for (const std::size_t count : {1UL, 1000UL, 1UL << 20, (1UL << 24) + 7}) {
        std::vector<float> values = any_floats(count);
        check_sum(gpu, values);
        values[count / 2] = std::numeric_limits<float>::infinity();
        check_sum(gpu, values);
        done += 2;
    }
    return fmt::format("{} sums of squares, the bits of the CPU", done);
}

}  // namespace lockstep
