// SPDX-License-Identifier: Apache-2.0
#include "transform_check.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/transform.hpp"

#include "nccl/cuda_library.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t images_of_check = 37;

/// Memory on the GPU. Move-only; null state: moved from.
class DeviceMemory {
  public:
    DeviceMemory(const CudaApi& api, std::size_t bytes) : api_(api) {
        check_cuda(api_, api_.allocate(&memory_, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    }
    DeviceMemory(DeviceMemory&& other) noexcept
        : api_(other.api_), memory_(std::exchange(other.memory_, nullptr)) {}
    ~DeviceMemory() {
        if (memory_ != nullptr) api_.release(memory_);
    }

    template <class T>
    T* as() const {
        return static_cast<T*>(memory_);
    }

  private:
    const CudaApi& api_;
    void* memory_ = nullptr;
};

/// liblockstep_cuda.so's transforms on a stream of their own.
class Gpu {
  public:
    Gpu() : cuda_(load_cuda()) {
        check_cuda(cuda_.api, cuda_.api.set_device(0), "cudaSetDevice");
        check_cuda(cuda_.api, cuda_.api.create_stream(&stream_), "cudaStreamCreate");
    }
    ~Gpu() { cuda_.api.destroy_stream(stream_); }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    DeviceMemory memory(std::size_t bytes) const { return {cuda_.api, bytes}; }

    template <class T>
    DeviceMemory copy_of(std::span<const T> values) const {
        DeviceMemory memory(cuda_.api, values.size_bytes());
        copy(memory.as<void>(), values.data(), values.size_bytes());
        return memory;
    }

    std::vector<float> floats(const DeviceMemory& memory, std::size_t count) const {
        std::vector<float> values(count);
        copy(values.data(), memory.as<void>(), count * sizeof(float));
        return values;
    }

    void transform(std::span<const StageLaunch> launches) const {
        const auto entry = reinterpret_cast<TransformEntryPoint>(symbol(transform_entry_point));
        check_cuda(cuda_.api,
                   entry(launches.data(), static_cast<int>(launches.size()), stream_),
                   transform_entry_point);
    }
    void mix(const MixLaunch& launch) const {
        const auto entry = reinterpret_cast<MixEntryPoint>(symbol(mix_entry_point));
        check_cuda(cuda_.api, entry(&launch, stream_), mix_entry_point);
    }

  private:
    void copy(void* to, const void* from, std::size_t bytes) const {
        check_cuda(cuda_.api, cuda_.api.copy_async(to, from, bytes, stream_), "cudaMemcpyAsync");
        wait();
    }
    void wait() const {
        CudaApi::Event end = nullptr;
        check_cuda(cuda_.api, cuda_.api.create_event(&end), "cudaEventCreate");
        check_cuda(cuda_.api, cuda_.api.record_event(end, stream_), "cudaEventRecord");
        CudaApi::Status status = CudaApi::not_ready;
        while (status == CudaApi::not_ready) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            status = cuda_.api.query_event(end);
        }
        cuda_.api.destroy_event(end);
        check_cuda(cuda_.api, status, "cudaEventQuery");
    }
    void* symbol(const char* name) const {
        void* address = cuda_.library.symbol(name);
        check(address != nullptr, [&] {
            return Error("E670",
                         fmt::format("'{}' has no function {}", cuda_.path, name),
                         "it was built without Lockstep's kernels",
                         "reinstall Lockstep, or unset LOCKSTEP_CUDA_LIB");
        });
        return address;
    }

    CudaLibrary cuda_;
    CudaApi::Stream stream_ = nullptr;
};

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

std::vector<float> transform_on(const Gpu& gpu,
                                const Case& test,
                                const ImageTransform& transform,
                                TransformKey key) {
    const std::size_t scratch_bytes = transform.scratch_values(images_of_check) * sizeof(float);
    const std::size_t values = images_of_check * transform.output().values();
    const DeviceMemory images = gpu.copy_of(std::span<const std::uint8_t>(test.images));
    const std::vector<StageDraw> host_draws = transform.draw(test.ids, key);
    const DeviceMemory draws = gpu.copy_of(std::span<const StageDraw>(host_draws));
    const DeviceMemory mean = gpu.copy_of(transform.mean()), scale = gpu.copy_of(transform.scale());
    const DeviceMemory first = gpu.memory(scratch_bytes), second = gpu.memory(scratch_bytes);
    const DeviceMemory out = gpu.memory(values * sizeof(float));
    gpu.transform(plan_launches(transform,
                                {.images = images.as<std::uint8_t>(),
                                 .draws = draws.as<StageDraw>(),
                                 .mean = mean.as<float>(),
                                 .scale = scale.as<float>(),
                                 .scratch = {first.as<float>(), second.as<float>()},
                                 .out = out.as<float>(),
                                 .layout = test.layout,
                                 .count = images_of_check}));
    return gpu.floats(out, values);
}

void check_mix(const Gpu& gpu,
               const Case& test,
               const ImageTransform& transform,
               TransformKey key,
               std::vector<float> images) {
    const std::vector<MixRow> host_rows = transform.mix_rows(test.ids, key);
    if (host_rows.empty()) return;
    const DeviceMemory in = gpu.copy_of(std::span<const float>(images));
    const DeviceMemory rows = gpu.copy_of(std::span<const MixRow>(host_rows));
    const DeviceMemory out = gpu.memory(images.size() * sizeof(float));
    const ImageShape& shape = transform.output();
    gpu.mix({in.as<float>(),
             out.as<float>(),
             rows.as<MixRow>(),
             shape.channels,
             shape.height,
             shape.width,
             test.layout,
             images_of_check});
    const std::vector<float> mixed = gpu.floats(out, images.size());
    transform.mix(images, host_rows, test.layout);
    check_bits(test, mixed, images, "mixing");
}

void check_case(const Gpu& gpu, const Case& test) {
    constexpr TransformKey key{3, 4};
    const std::vector<double> mean(static_cast<std::size_t>(test.shape.channels), 0.45);
    const std::vector<double> std(static_cast<std::size_t>(test.shape.channels), 0.23);
    const ImageTransform transform(TransformPipeline::parse(test.pipeline), test.shape, mean, std);
    std::vector<float> expected(images_of_check * transform.output().values());
    transform.apply(test.images, test.ids, key, test.layout, expected);
    check_bits(test, transform_on(gpu, test, transform, key), expected, "transforming");
    check_mix(gpu, test, transform, key, expected);
}

}  // namespace

std::string check_transforms() {
    const Gpu gpu;
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

}  // namespace lockstep
