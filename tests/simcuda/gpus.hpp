// SPDX-License-Identifier: Apache-2.0
// The GPUs that are simulated, as CUDA and NVML both name them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace simcuda {

inline constexpr int usual_gpus = 8, first_bus = 0x11;

inline int gpu_count() {
    const char* const text = std::getenv("SIMCUDA_GPUS");
    return text == nullptr ? usual_gpus : std::atoi(text);
}

inline std::string two_digits(int number) {
    constexpr const char* digits = "0123456789abcdef";
    return {digits[number / 16 % 16], digits[number % 16]};
}

inline std::string pci_of(int gpu) {
    return "0000:" + two_digits(first_bus + gpu) + ":00.0";
}

inline std::string uuid_of(int gpu) {
    return "GPU-51c0da" + two_digits(gpu) + "-0000-4000-8000-000000000000";
}

/// The GPUs that CUDA shows, in its order. NVML counts by the bus; CUDA does not have to, and here
/// the other way round, so that who takes one for the other gets another rank's GPU.
inline std::vector<int> shown_gpus() {
    std::vector<int> shown;
    const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
    for (int gpu = gpu_count(); list == nullptr && gpu-- > 0;) shown.push_back(gpu);
    std::istringstream words(list == nullptr ? "" : list);
    for (std::string word; std::getline(words, word, ',');)
        for (int gpu = 0; gpu < gpu_count(); ++gpu)
            if (word == std::to_string(gpu) || word == uuid_of(gpu)) shown.push_back(gpu);
    return shown;
}

/// As CUDA: the environment counts when it is first asked.
inline const std::vector<int>& devices() {
    static const std::vector<int> shown = shown_gpus();
    return shown;
}

inline int device_count() {
    return static_cast<int>(devices().size());
}

inline int gpu_of_device(int device) {
    return devices().at(static_cast<std::size_t>(device));
}

inline constexpr const char* gpu_name = "Simulated GPU";
inline constexpr int driver_of_cuda = 13000;  ///< as cuDriverGetVersion has it
inline constexpr std::size_t usual_memory = std::size_t{16} << 30;

}  // namespace simcuda
