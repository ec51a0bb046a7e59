# SPDX-License-Identifier: Apache-2.0
# Toolchain: compiles on x86-64 for 64-bit Arm with Debian's g++-aarch64-linux-gnu.
#
#   cmake -S . -B build/aarch64 --toolchain src/cmake/aarch64-linux-gnu.cmake \
#         -DLOCKSTEP_SYSROOT=FOLDER -DLOCKSTEP_TORCH=LIBTORCH_OF_AARCH64
#
# FOLDER has the root of a Debian for arm64 with the packages of 'scripts/setup list run'.
# tests/soak/aarch64 makes one, and runs what is built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LOCKSTEP_SYSROOT)
set(CMAKE_SYSROOT ${LOCKSTEP_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOCKSTEP_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${LOCKSTEP_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${LOCKSTEP_SYSROOT}/usr/share/pkgconfig)

# Open MPI's compiler wrapper for Arm is a program of Arm, and this machine's one names this machine's folders.
set(libraries ${LOCKSTEP_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
set(MPI_SKIP_COMPILER_WRAPPER ON)
set(MPI_CXX_HEADER_DIR ${libraries}/openmpi/include)
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${libraries}/libmpi.so.40)
# Debian keeps HDF5 in folders of its own; h5cc of this machine names those of this machine.
set(CMAKE_LIBRARY_PATH ${libraries}/hdf5/serial)
set(CMAKE_INCLUDE_PATH ${LOCKSTEP_SYSROOT}/usr/include/hdf5/serial)
