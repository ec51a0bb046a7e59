# SPDX-License-Identifier: Apache-2.0
"""What HDF5 2 writes and 1.x does not: for an h5py that has it (3.16). Its newest format, complex numbers as a class
of types, bfloat16, and chunks of more than 4 GiB."""
import h5py
import numpy as np
from matrix import Field
from numbers_of import brain_bits, create, made, write_brain, writer, ROWS

NEWEST = dict(libver='latest')
# By HDF5 1.x, with a command that the h5py of the file runs.
REFUSED = dict(stream='E205', pack='E205', way='command')


def layouts(matrix):
    values = made('i4', (ROWS, 6, 5))
    for name, options in (('plain', {}), ('chunks', dict(chunks=(7, 6, 5))),
                          ('gzip', dict(chunks=(7, 4, 3), compression='gzip', shuffle=True, fletcher32=True)),
                          ('lzf', dict(chunks=(10, 6, 5), compression='lzf')),
                          ('growing', dict(chunks=(7, 6, 5), maxshape=(None, 6, 5))),
                          ('growing_both', dict(chunks=(7, 6, 5), maxshape=(None, None, 5), compression='gzip')),
                          ('one_chunk', dict(chunks=(ROWS, 6, 5)))):
        matrix.one('newest_' + name, values, writer(values, **NEWEST, **options),
                   **(REFUSED if 'compression' in options else {}))
    for kind in ('f2', '>f4', 'f8', 'u1'):
        numbers = made(kind, (ROWS, 9))
        matrix.one('newest_' + kind.strip('>'), numbers, writer(numbers, **NEWEST, chunks=True))
    # Without a word HDF5 2 writes what older libraries read.
    matrix.one('newest_default', values, writer(values, chunks=(7, 6, 5), compression='gzip'))
    matrix.one('newest_default_plain', values, writer(values))
    matrix.one('newest_default_brain', brain_bits()[1], write_brain(h5py.h5t.ORDER_LE), field='values=/x')


def numbers(matrix):
    for name, order in (('little', h5py.h5t.ORDER_LE), ('big', h5py.h5t.ORDER_BE)):
        matrix.one('newest_brain_' + name, brain_bits()[1], write_brain(order, **NEWEST), field='values=/x')
    for name, kind, dtype in (('f32', h5py.h5t.COMPLEX_IEEE_F32LE, 'c8'), ('f64', h5py.h5t.COMPLEX_IEEE_F64LE, 'c16')):
        values = (made('f8', (ROWS, 4)) + 1j * made('f8', (ROWS, 4), 2)).astype(dtype)
        create(matrix.folder('newest_complex_' + name), kind, values.shape, values, **NEWEST)
        parts = np.stack([values.real, values.imag], 1)
        matrix.add([Field('values=/x', parts)], **REFUSED)


def chunks(matrix):
    """4.6 GB each, and never written, or the file would have them."""
    width = 1 << 16
    create(matrix.folder('newest_chunk_of_4_gib'), h5py.h5t.STD_U8LE, (ROWS, width), chunk=(70_000, width), **NEWEST)
    matrix.add([Field('values=/x', np.zeros((ROWS, width), 'u1'))], **REFUSED)


def add(matrix):
    if h5py.version.hdf5_version_tuple < (2, 0, 0):
        return
    layouts(matrix)
    numbers(matrix)
    chunks(matrix)
