# SPDX-License-Identifier: Apache-2.0
"""Lockstep from the checkout that this file is in, with the LibTorch that it is proven with."""
import glob
import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *

CHECKOUT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 6))
WHEELS = "https://files.pythonhosted.org/packages"


class Lockstep(CMakePackage):
    """Trains a LibTorch model on any number of MPI ranks and gives the same model, bit for bit."""

    git = "file://" + CHECKOUT

    license("Apache-2.0")

    version("0.2.0", branch="main")

    variant("png", default=True, description="Pack PNG images")
    variant("jpeg", default=True, description="Pack JPEG images")
    variant("tiff", default=True, description="Pack TIFF images")
    variant("blosc", default=True, description="Read HDF5 chunks that blosc compressed")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("unzip", type="build")
    depends_on("openmpi@4.1")
    depends_on("hwloc@2.8:")
    depends_on("hdf5@1.10 ~mpi")
    depends_on("boost@1.74: +program_options")
    depends_on("fmt@9.1:9")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3.3:")
    depends_on("xxhash@0.8.1:")
    depends_on("lz4@1.9.4:")
    depends_on("zstd@1.5.4:")
    depends_on("libdeflate@1.14:")
    depends_on("zlib-api")
    depends_on("libpng@1.6:", when="+png")
    depends_on("jpeg", when="+jpeg")
    depends_on("libtiff@4.5:", when="+tiff")
    depends_on("c-blosc@1.21:", when="+blosc")

    # LibTorch decides the bits: the same wheels as scripts/wheels.txt has, not py-torch.
    resource(
        name="torch",
        url=WHEELS + "/cp311/t/torch/torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        sha256="7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
        expand=False,
        placement="wheel-torch",
    )
    resource(
        name="nvidia-cuda-runtime",
        url=WHEELS + "/py3/n/nvidia-cuda-runtime/nvidia_cuda_runtime-13.0.96-py3-none-"
        "manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256="7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        expand=False,
        placement="wheel-nvidia-cuda-runtime",
    )
    resource(
        name="nvidia-cuda-cupti",
        url=WHEELS + "/py3/n/nvidia-cuda-cupti/nvidia_cuda_cupti-13.0.85-py3-none-"
        "manylinux_2_25_x86_64.whl",
        sha256="4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        expand=False,
        placement="wheel-nvidia-cuda-cupti",
    )

    conflicts("platform=darwin", msg="Lockstep is built and proven on Linux")
    conflicts("target=aarch64:", msg="Lockstep is built and proven on x86_64")

    generator("ninja")

    # An installed program looks for LibTorch in libtorch/ beside its bin/.
    @run_before("cmake")
    def unpack_libtorch(self):
        unzip = which("unzip", required=True)
        wheels = self.stage.source_path

        def wheel(name):
            return glob.glob(os.path.join(wheels, "wheel-" + name, "*"))[0]

        with working_dir(self.prefix, create=True):
            unzip("-q", wheel("torch"), "torch/include/*", "torch/lib/*", "torch/share/*")
            os.rename("torch", "libtorch")
            for name, library in (
                ("nvidia-cuda-runtime", "*/libcudart.so.13"),
                ("nvidia-cuda-cupti", "*/libcupti.so.13"),
            ):
                unzip("-q", "-j", "-o", wheel(name), library, "-d", "libtorch/lib")

    def cmake_args(self):
        return [
            self.define("LOCKSTEP_TORCH", self.prefix.libtorch),
            self.define("LOCKSTEP_TESTS", False),
            self.define("LOCKSTEP_WITH_CUDA", False),
            self.define_from_variant("LOCKSTEP_WITH_PNG", "png"),
            self.define_from_variant("LOCKSTEP_WITH_JPEG", "jpeg"),
            self.define_from_variant("LOCKSTEP_WITH_TIFF", "tiff"),
            self.define_from_variant("LOCKSTEP_WITH_BLOSC", "blosc"),
        ]
