# SPDX-License-Identifier: Apache-2.0
"""Types of numbers, shapes of samples, and ways to lie in a file."""
import h5py
import numpy as np
from matrix import Field

ROWS = 60


def made(kind, shape, seed=1):
    """Numbers of any type that it holds exactly."""
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(kind).kind in 'ub' else -100
    values = rng.integers(low, 100, shape)
    return (values / 4 if np.dtype(kind).kind == 'f' else values).astype(kind)


def writer(values, path='/x', file='a.h5', libver=None, **options):
    def write(folder):
        with h5py.File(folder + file, 'w', libver=libver) as out:
            out.create_dataset(path, data=values, **options)
    return write


def filled(fill, **options):
    """A file that `fill(out)` fills."""
    def write(folder):
        with h5py.File(folder + 'a.h5', 'w', **options) as out:
            fill(out)
    return write


def brain(order):
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_ebias(127)
    kind.set_size(2)
    kind.set_precision(16)
    kind.set_order(order)
    return kind


def brain_bits():
    """bfloat16, and the f32 of the same value."""
    bits = (made('f4', (ROWS, 6)).view('u4') >> 16).astype('u2')
    return bits, (bits.astype('u4') << 16).view('f4')


def create(folder, kind, shape, values=None, chunk=None, libver=None):
    """/x of a type that numpy has not."""
    with h5py.File(folder + 'a.h5', 'w', libver=libver) as out:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunk:
            how.set_chunk(chunk)
        space = h5py.h5s.create_simple(shape, (h5py.h5s.UNLIMITED,) * len(shape) if chunk else None)
        data = h5py.h5d.create(out.id, b'x', kind, space, how)
        if values is not None:
            data.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)


def write_brain(order, **options):
    def write(folder):
        stored = brain_bits()[0].astype('<u2' if order == h5py.h5t.ORDER_LE else '>u2')
        create(folder, brain(order), stored.shape, stored, **options)
    return write


def types(matrix):
    for kind in ('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'f2', 'f4', 'f8'):
        for order in '<' if kind[1] == '1' else '<>':
            values = made(order + kind, (ROWS, 3, 4))
            name = kind + {'<': '_little', '>': '_big'}[order]
            matrix.one('type_' + name, values, writer(values))
            matrix.one('type_' + name + '_gzip', values, writer(values, chunks=(7, 3, 4), compression='gzip'))
    for kind in ('u4', 'i8', 'f2'):
        values = made('>' + kind, (ROWS, 5, 7))
        matrix.one(f'type_{kind}_big_cut', values, writer(values, chunks=(8, 2, 3), shuffle=True, compression='lzf'))
    truth = made('u1', (ROWS, 9)) > 50
    matrix.one('type_bool', truth, writer(truth))
    matrix.one('type_bool_auto', truth, writer(truth, chunks=True, compression='gzip'))
    for name, order in (('little', h5py.h5t.ORDER_LE), ('big', h5py.h5t.ORDER_BE)):
        matrix.one('type_bf16_' + name, brain_bits()[1], write_brain(order))
    for kind, least in (('f2', (6e-8, 6e-5, 65504)), ('f8', (1e-310, 5e-324, 1.8e308))):
        special = np.array([0, -0.0, np.inf, -np.inf, *least], kind).reshape(7, 1)
        matrix.one('type_special_' + kind, special, writer(special))


def labels(matrix):
    classes = made('i8', ROWS) % 7
    for kind in ('u1', 'i2', '>i4', '<u8', '>u8'):
        stored, name = classes.astype(kind), kind.replace('<', '').replace('>', 'big_')
        matrix.one('labels_' + name, stored, writer(stored, '/y'), field='labels=/y')
    for name, shape in (('column', (ROWS, 1)), ('row', (ROWS,))):
        matrix.one('labels_chunked_' + name, classes,
                   writer(classes.reshape(shape), '/y', chunks=True, compression='gzip'), field='labels=/y')
    matrix.one('labels_float', classes, writer(classes.astype('f4'), '/y'), field='labels=/y:label')


def images(matrix):
    for shape, layout in (((3, 8, 6), 'CHW'), ((8, 6, 3), 'HWC'), ((8, 6), 'HW'), ((1, 8, 6), 'CHW')):
        for way, options in (('', {}), ('_gzip', dict(compression='gzip')), ('_rows', dict(chunks=(16, *shape)))):
            pixels, classes = made('u1', (ROWS, *shape)), made('u1', ROWS) % 5
            folder = matrix.folder(f'images_{"x".join(map(str, shape))}{way}')
            with h5py.File(folder + 'a.h5', 'w') as out:
                out.create_dataset('scan/x', data=pixels, **options)
                out['y'] = classes
            packed = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)) if layout == 'HWC' else pixels
            matrix.add([Field('images=/scan/x:' + layout, pixels, packed), Field('labels=/y', classes)])


def shapes(matrix):
    for shape in ((), (1,), (5,), (1, 1, 1), (2, 3, 4, 5), (1, 70000), (70000,), (513, 2)):
        values = made('f4', ((9 if np.prod(shape) > 1000 else ROWS), *shape))
        text = 'x'.join(map(str, shape)) or 'scalar'
        matrix.one('shape_' + text, values, writer(values))
        matrix.one(f'shape_{text}_auto', values, writer(values, chunks=True, shuffle=True))
    single = made('i4', (1, 4, 4))
    matrix.one('shape_one_sample', single, writer(single))
    many = made('i2', (20000, 2))
    matrix.one('shape_many_samples', many, writer(many, chunks=(100, 2)))


def several(matrix):
    folder = matrix.folder('files_three')
    parts = [made('f4', (rows, 2, 5), rows) for rows in (31, 1, 64)]
    for number, part in enumerate(parts):
        options = [{}, dict(chunks=(1, 1, 2)), dict(compression='lzf')][number]
        with h5py.File(f'{folder}part-{number}.h5', 'w') as out:
            out.create_dataset('x', data=part, **options)
            out['y'] = np.arange(len(part)).astype(['u1', 'u1', 'u1'][number])
    counted = np.concatenate([np.arange(len(part)) for part in parts]).astype('u1')
    matrix.add([Field('values=/x', np.concatenate(parts)), Field('labels=/y', counted)],
               files=[f'part-{number}.h5' for number in range(3)])


def add(matrix):
    for axis in (types, labels, images, shapes, several):
        axis(matrix)
