# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Libraries of NVIDIA's that LibTorch needs, and how a bundle takes them along. Sourced, never run.

# What libtorch_cpu.so needs of the CUDA toolkit: library and the wheel that has it.
# shellcheck disable=SC2034 # of who sources this
cuda_libraries=(
    'libcudart.so.13|nvidia-cuda-runtime'
    'libcupti.so.13|nvidia-cuda-cupti'
)
# What libtorch_cuda.so needs besides, or opens by name.
gpu_libraries=(
    'libcublas.so.13|nvidia-cublas'
    'libnvrtc.so.13|nvidia-cuda-nvrtc'
    'libcudnn.so.9|nvidia-cudnn-cu13'
    'libcufft.so.12|nvidia-cufft'
    'libcufile.so.0|nvidia-cufile'
    'libcurand.so.10|nvidia-curand'
    'libcusolver.so.12|nvidia-cusolver'
    'libcusparse.so.12|nvidia-cusparse'
    'libcusparseLt.so.0|nvidia-cusparselt-cu13'
    'libnccl.so.2|nvidia-nccl-cu13'
    'libnvJitLink.so.13|nvidia-nvjitlink'
    'libnvshmem_host.so.3|nvidia-nvshmem-cu13'
)

# loaded_by_torch TORCH: lines of 'library => path' that the loader would load for LibTorch's parts.
loaded_by_torch() {
    ldd "$1"/lib/libtorch_{cpu,cuda,cuda_linalg}.so 2>/dev/null || true
}

# gpu_library_path TORCH LISTED NAME: where the loader finds it, or nothing. LISTED: loaded_by_torch.
gpu_library_path() {
    local path
    path=$(awk -v name="$3" '$1 == name && $3 ~ /^\// { print $3; exit }' <<<"$2")
    [[ -n $path || ! -e $1/lib/$3 ]] || path=$1/lib/$3
    [[ -n $path ]] || path=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
        awk -v name="$3" '$1 == name { print $NF; exit }')
    echo "$path"
}

# take_with_parts FILE NAME DESTINATION: as NAME, with those beside it that it opens by name (cuDNN's
# engines, NVRTC's builtins, NVSHMEM's transports), each once by the name that the loader asks for.
take_with_parts() {
    local part name stem=${2%%.so*}
    cp -nL "$1" "$3/$2"
    stem=${stem%%_*}
    for part in "${1%/*}/$stem"*.so* "${1%/*}/${stem#lib}"_*.so*; do
        [[ -f $part && ! -L $part && $part != "$1" ]] || continue
        name=$(patchelf --print-soname "$part" 2>/dev/null || true)
        cp -n "$part" "$3/${name:-${part##*/}}"
    done
}

# check_gpu_libraries TORCH: fails, naming them, where some are nowhere.
check_gpu_libraries() {
    local entry listed lacked=()
    listed=$(loaded_by_torch "$1")
    for entry in "${cuda_libraries[@]}" "${gpu_libraries[@]}"; do
        [[ -n $(gpu_library_path "$1" "$listed" "${entry%%|*}") ]] || lacked+=("${entry%%|*}")
    done
    ((${#lacked[@]} == 0)) || fail 66 "what LibTorch needs to train on GPUs is not here: ${lacked[*]}" \
        "scripts/setup gpu, or load the site's module (LD_LIBRARY_PATH)"
}

# take_gpu_libraries TORCH DESTINATION: copies all of them, after check_gpu_libraries.
take_gpu_libraries() {
    local entry name path listed
    listed=$(loaded_by_torch "$1")
    mkdir -p "$2"
    for entry in "${cuda_libraries[@]}" "${gpu_libraries[@]}"; do
        name=${entry%%|*}
        path=$(gpu_library_path "$1" "$listed" "$name")
        take_with_parts "$path" "$name" "$2"
    done
}
