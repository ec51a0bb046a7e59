# SPDX-License-Identifier: Apache-2.0
"""What is no number, or none that a field holds; and what has no samples."""
import h5py
import numpy as np
from matrix import Field
from numbers_of import filled, made, writer, ROWS


def with_labels(matrix, name, values, wanted, **how):
    """`values` at /x beside labels: what is written anew has both."""
    classes = made('u1', ROWS) % 3
    with h5py.File(matrix.folder(name) + 'a.h5', 'w') as out:
        out['x'], out['y'] = values, classes
    matrix.add([Field('values=/x', wanted), Field('labels=/y', classes)], stream='E234', pack='E214', **how)


def numbers(matrix):
    real, imaginary = made('f8', (ROWS, 4)), made('f8', (ROWS, 4), 2)
    for kind, part in (('c8', 'f4'), ('c16', 'f8')):
        parts = np.stack([real, imaginary], 1).astype(part)
        with_labels(matrix, 'complex_' + kind, (real + 1j * imaginary).astype(kind), parts, way='command')
    wide = made('u8', (ROWS, 4)) + (np.uint64(1) << np.uint64(40))
    refused = dict(field='values=/x', stream='E234', pack='E214', way='command')
    matrix.one('u64', wide, writer(wide), as_type='f8', **refused)
    matrix.one('long_double', real, writer(real.astype(np.longdouble)), **refused)
    arrays = made('f4', (ROWS, 2, 3))

    def array_type(out):
        out.create_dataset('x', (ROWS,), np.dtype('(2,3)f4'))[...] = arrays
    matrix.one('array_type', arrays, filled(array_type), **refused)


def compounds(matrix):
    kind = np.dtype([('id', 'i8'), ('mass', '>f4'), ('name', 'S3'), ('at', 'f8', (3,))])
    rows = np.zeros(ROWS, kind)
    rows['id'], rows['mass'], rows['at'] = np.arange(ROWS), made('f4', ROWS), made('f8', (ROWS, 3))
    matrix.one('compound', rows['at'], writer(rows, '/t/rows'), field='values=/t/rows', stream='E234', pack='E214',
               way='command', after='values=/t/rows/at')


def named(matrix):
    """Classes by name, which are numbered as their names sort."""
    words = np.array(['one', 'two', 'three'] * (ROWS // 3))
    numbers = np.searchsorted(['one', 'three', 'two'], words).astype('u1')
    for name, texts, kind in (('fixed', words.astype('S5'), None),
                              ('variable', words.astype(object), h5py.string_dtype())):
        matrix.one('labels_text_' + name, numbers, writer(texts, '/y', dtype=kind), field='labels=/y')
        # Behind filters that the library has not, or only as a plug-in (LZ4).
        for filter, options in dict(lzf=dict(compression='lzf'), lzf_all=dict(
                compression='lzf', shuffle=True, fletcher32=kind is None, chunks=(7,)), lz4=dict(compression=32004)).items():
            matrix.one(f'labels_text_{name}_{filter}', numbers, writer(texts, '/y', dtype=kind, **options),
                       field='labels=/y')
    kind = h5py.enum_dtype({'calm': 0, 'storm': 5}, 'i2')
    values = np.array([0, 5, 5] * (ROWS // 3), 'i2')
    matrix.one('enum_values', values, writer(values, dtype=kind), field='values=/x')
    matrix.one('enum_labels', values, writer(values, '/y', dtype=kind), field='labels=/y')


def no_numbers(matrix):
    refused = dict(stream='E234', pack='E214', way='-')
    texts = np.array(['one', 'two', 'three'] * (ROWS // 3))
    none = np.zeros(0, 'u1')
    matrix.one('text_fixed', none, writer(texts.astype('S5')), **refused)
    matrix.one('text_variable', none, writer(texts.astype(object), dtype=h5py.string_dtype()), **refused)

    def ragged(out):
        data = out.create_dataset('x', (ROWS,), h5py.vlen_dtype('i4'))
        for row in range(ROWS):
            data[row] = np.arange(row % 5)
    matrix.one('ragged', none, filled(ragged), **refused)

    def references(out):
        out['g'] = 1
        out.create_dataset('x', (ROWS,), h5py.ref_dtype)[...] = out['g'].ref
    matrix.one('references', none, filled(references), **refused)
    matrix.one('opaque', none, writer(np.zeros(ROWS, 'V5')), **refused)


def no_samples(matrix):
    refused = dict(stream='E234', pack='E214', way='fields')
    none, there = np.zeros(0, 'f4'), made('f4', (ROWS, 4))
    for name, shape in dict(no_rows=(0, 4), no_columns=(5, 0), scalar=()).items():
        def empty(out):
            out['there'] = there
            out.create_dataset('x', shape, 'f4')
        matrix.one('empty_' + name, none, filled(empty), **refused)

    def null(out):
        out['there'] = there
        out['x'] = h5py.Empty('f4')
    matrix.one('empty_null', none, filled(null), **refused)


def add(matrix):
    for axis in (numbers, compounds, named, no_numbers, no_samples):
        axis(matrix)
