# SPDX-License-Identifier: Apache-2.0
"""Layouts, chunks, filters, versions of the format, links, and what was never written."""
import ctypes
import os
import shutil

import h5py
import numpy as np
from matrix import Field
from numbers_of import filled, made, writer, ROWS

SHAPE = (ROWS, 6, 5)
NEWER = os.path.dirname(__file__) + '/newer.h5'


def layouts(matrix):
    values = made('i4', SHAPE)
    for name, chunks in (('rows', (10, 6, 5)), ('one_row', (1, 6, 5)), ('edge', (7, 6, 5)), ('cut', (8, 4, 2)),
                         ('cut_edge', (7, 4, 3)), ('cut_rows', (1, 2, 5)), ('beyond', (ROWS, 6, 5)), ('auto', True)):
        matrix.one('chunks_' + name, values, writer(values, chunks=chunks))
        matrix.one(f'chunks_{name}_lzf', values, writer(values, chunks=chunks, compression='lzf', fletcher32=True))
    larger = dict(chunks=(100, 9, 9), maxshape=(None, None, None), compression='gzip')
    matrix.one('chunks_larger_than_all', values, writer(values, **larger))

    def compact(out):
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_layout(h5py.h5d.COMPACT)
        small = h5py.h5d.create(out.id, b'x', h5py.h5t.STD_I32LE, h5py.h5s.create_simple(SHAPE), how)
        small.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    matrix.one('layout_compact', values, filled(compact), stream='E234', way='command')


def elsewhere(matrix):
    values = made('i4', SHAPE)

    def virtual(place, *parts):
        """Files of values, each with its options, that `place` puts into the layout."""
        def write(folder):
            layout, sources = h5py.VirtualLayout(SHAPE, 'i4'), []
            for number, (stored, options) in enumerate(parts):
                writer(stored, file=f'part-{number}.h5', **options)(folder)
                sources.append(h5py.VirtualSource(f'part-{number}.h5', 'x', stored.shape))
            place(layout, *sources)
            filled(lambda out: out.create_virtual_dataset('x', layout))(folder)
        return write

    def two(layout, first, second):
        layout[:40], layout[40:] = first, second

    # The same part again, in the order of the rows, which is not that of the mappings.
    def again(layout, source):
        layout[40:], layout[:20], layout[20:40] = source, source, source

    # Not row after row: parts of rows, every second row, rows of a larger data set, and a row that nothing maps.
    def whole(layout, source):
        layout[:] = source

    def columns(layout, source):
        layout[:, :2], layout[:, 2:] = source[:, :2], source[:, 2:]

    def second_rows(layout, source):
        layout[::2], layout[1::2] = source[::2], source[1::2]

    def halves(layout, source):
        layout[:25], layout[25:] = source[:25], source[25:]

    def within(out):
        out['part'] = values
        layout = h5py.VirtualLayout(SHAPE, 'i4')
        layout[:] = h5py.VirtualSource(out['part'])
        out.create_virtual_dataset('x', layout)

    def external(folder):
        values.tofile(folder + 'raw.bin')
        with h5py.File(folder + 'a.h5', 'w') as out:
            out.create_dataset('x', SHAPE, 'i4', external=[('raw.bin', 0, h5py.h5f.UNLIMITED)])

    # Stretches of two files, which end after so many bytes.
    def external_two(bytes_of_first):
        def write(folder):
            stored = values.tobytes()
            for name, part in (('0.bin', stored[:bytes_of_first]), ('1.bin', stored[bytes_of_first:])):
                with open(folder + name, 'wb') as out:
                    out.write(b'head' * 5 + part)
            with h5py.File(folder + 'a.h5', 'w') as out:
                out.create_dataset('x', SHAPE, 'i4', external=[
                    ('0.bin', 20, bytes_of_first), ('1.bin', 20, len(stored) - bytes_of_first)])
        return write

    def linked(name, path, target):
        def write(folder):
            writer(values, target, file='other.h5')(folder)
            with h5py.File(folder + 'a.h5', 'w') as out:
                out[name] = h5py.ExternalLink('other.h5', path)
        return write

    # As detectors write them: values of each file in another one beside it.
    def linked_each(folder):
        for number, rows in enumerate((values[:25], values[25:])):
            writer(rows, '/deep/x', file=f'data-{number}.h5', chunks=(4, 3, 5), compression='gzip')(folder)
            with h5py.File(folder + f'{number}.h5', 'w') as out:
                out['g/x'] = h5py.ExternalLink(f'data-{number}.h5', '/deep/x')
                out['y'] = np.arange(len(rows))

    def linked_twice(folder):
        linked('x', '/x', '/x')(folder)
        with h5py.File(folder + 'a.h5', 'a') as out:
            out['soft'] = h5py.SoftLink('/x')
            out['other'] = h5py.ExternalLink('a.h5', '/soft')

    refused = dict(pack='E214', way='command')
    lost = refused | dict(pack='E205')
    part = values[:20], dict(chunks=(6, 4, 5), compression='gzip')
    first, rest = (values[:40], dict(chunks=True)), (values[40:], {})
    matrix.one('layout_virtual', values, virtual(two, first, rest), stream='E234', **refused)
    matrix.one('layout_virtual_within', values, filled(within), stream='E234', **refused)
    matrix.one('layout_virtual_again', np.tile(values[:20], (3, 1, 1)), virtual(again, part), stream='E234', **refused)
    for place in (columns, second_rows, halves):
        name = f'layout_virtual_apart_{place.__name__}'
        matrix.one(name, values, virtual(place, (values, {})), stream='E234', **refused)
    narrow = values.astype('i2')
    matrix.one('layout_virtual_apart_type', narrow.astype('i4'), virtual(whole, (narrow, {})), stream='E234', **refused)
    matrix.one('layout_external', values, external, stream='E234', **refused)
    matrix.one('layout_external_two', values, external_two(17 * 120), stream='E234', **refused)
    matrix.one('layout_external_apart', values, external_two(17 * 120 + 8), stream='E234', **refused)
    matrix.one('link_external', values, linked('x', '/x', '/x'), stream='E205', **lost)
    linked_each(matrix.folder('link_external_each'))
    matrix.add([Field('values=/g/x:value', values), Field('order=/y:value', np.r_[:25, :35].astype('i8'))],
               files=('0.h5', '1.h5'), stream='E205', **lost)
    matrix.one('link_external_twice', values, linked_twice, path='/soft', stream='E205', **lost)
    matrix.one('link_external_group', values, linked('g', '/deep', '/deep/x'), path='/g/x', stream='E205', **lost)


def filters(matrix):
    values = made('i4', SHAPE)
    rows = dict(chunks=(9, 6, 5))
    for name, options in dict(
            gzip_1=dict(compression='gzip', compression_opts=1), gzip_9=dict(compression='gzip', compression_opts=9),
            gzip_0=dict(compression='gzip', compression_opts=0), lzf=dict(compression='lzf'),
            shuffle=dict(shuffle=True), fletcher32=dict(fletcher32=True),
            gzip_shuffle=dict(compression='gzip', shuffle=True),
            all=dict(compression='gzip', shuffle=True, fletcher32=True),
            lzf_shuffle=dict(compression='lzf', shuffle=True)).items():
        matrix.one('filter_' + name, values, writer(values, **rows, **options))
        matrix.one(f'filter_{name}_cut', values, writer(values, chunks=(8, 4, 2), **options))
    noise = np.random.default_rng(1).integers(0, 256, SHAPE, 'u1')
    matrix.one('filter_lzf_noise', noise, writer(noise, **rows, compression='lzf'))
    library = dict(szip=dict(compression='szip'), szip_nn=dict(compression='szip', compression_opts=('nn', 16)),
                   scale_offset=dict(scaleoffset=0))
    for name, options in library.items():
        matrix.one('filter_' + name, values, writer(values, **rows, **options), stream='E212', way='command')
    reals = np.round(made('f4', SHAPE)) + 0  # without a sign
    matrix.one('filter_scale_offset_real', reals, writer(reals, **rows, scaleoffset=0), stream='E212', way='command')
    for name, number, options in (('lz4', 32004, ()), ('bzip2', 307, (9,))):
        refused = {} if name == 'lz4' else dict(stream='E212', way='command')
        how = dict(compression=number, compression_opts=options)
        matrix.one('filter_' + name, values, writer(values, **rows, **how), **refused)


def large_chunks(matrix):
    values = np.zeros((8, 1 << 20), 'i4')
    values[:, 7] = np.arange(8)
    matrix.one('memory_gzip', values, writer(values, chunks=values.shape, compression='gzip'))
    matrix.one('memory_scale_offset', values, writer(values, chunks=values.shape, scaleoffset=0), stream='E212',
               way='command')


def directly(values, number, encode, chunk, mask=0):
    """Chunks of whole rows that no library compresses here."""
    def write(folder):
        with h5py.File(folder + 'a.h5', 'w') as out:
            how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how.set_chunk((chunk, *values.shape[1:]))
            how.set_filter(number, h5py.h5z.FLAG_OPTIONAL, ())
            space = h5py.h5s.create_simple(values.shape)
            data = h5py.h5d.create(out.id, b'x', h5py.h5t.py_create(values.dtype), space, how)
            for first in range(0, len(values), chunk):
                rows = np.zeros((chunk, *values.shape[1:]), values.dtype)
                part = values[first:first + chunk]
                rows[:len(part)] = part
                data.write_direct_chunk((first, *[0] * (values.ndim - 1)), encode(rows.tobytes()), mask)
    return write


def zstd(data):
    library = ctypes.CDLL('libzstd.so.1')
    out = ctypes.create_string_buffer(len(data) + 1024)
    size = library.ZSTD_compress(out, ctypes.c_size_t(len(out)), data, ctypes.c_size_t(len(data)), 3)
    return out.raw[:size]


def chunks_of_others(matrix):
    values = made('f4', SHAPE)
    matrix.one('filter_zstd', values, directly(values, 32015, zstd, 7))
    matrix.one('filter_skipped', values, directly(values, 32015, bytes, 7, mask=1))
    # Neither this program nor the library of this machine knows it.
    matrix.one('filter_unknown', values, directly(values, 32123, bytes, 7), stream='E212', pack='E213', way='-')
    matrix.one('filter_unknown_skipped', values, directly(values, 32123, bytes, 7, mask=1))


def versions(matrix):
    values = made('u2', SHAPE)
    kinds = dict(contiguous={}, chunked=dict(chunks=(9, 6, 5)), auto=dict(compression='gzip'),
                 one_chunk=dict(chunks=SHAPE, compression='lzf'), growing=dict(maxshape=(None, 6, 5), chunks=(4, 6, 5)),
                 growing_twice=dict(maxshape=(None, None, 5), chunks=(4, 3, 5), compression='gzip'))
    for version in ('earliest', 'v108', 'v110', 'latest'):
        libver = (version, version) if version.startswith('v') else version
        for name, options in kinds.items():
            matrix.one(f'version_{version}_{name}', values, writer(values, libver=libver, **options))
    # Of h5py 3.16 with HDF5 2.0 and libver='latest', which this machine's h5py does not read either.
    newer = np.arange(16, dtype='u1').reshape(8, 2)
    matrix.one('version_of_others', newer, lambda folder: shutil.copy(NEWER, folder + 'a.h5'),
               stream='E205', pack='E205', way='shown')


def names(matrix):
    values = made('f4', (ROWS, 4))

    @filled
    def links(out):
        out['deep/er/x'] = values
        out['hard'] = out['deep/er/x']
        out['soft'] = h5py.SoftLink('/deep/er/x')
        out['chain'] = h5py.SoftLink('soft')
        out['group'] = h5py.SoftLink('/deep')
        out['lost'] = h5py.SoftLink('/nowhere')
        out['with space/und \u00fcber'] = values
        out["it's"] = values

    for name, path in dict(deep='/deep/er/x', hard='/hard', soft='/soft', chain='/chain', group='/group/er/x',
                           space='/with space/und \u00fcber', quote="/it's").items():
        matrix.one('link_' + name, values, links, path=path)
    matrix.one('link_lost', values, links, path='/lost', stream='E207', pack='E207', way='fields')
    matrix.one('link_to_group', values, links, path='/deep', stream='E207', pack='E207', way='fields')
    matrix.one('link_missing', values, links, path='/deep/er/y', stream='E207', pack='E207', way='fields')


def unwritten(matrix):
    def partly(fill, wanted, **options):
        def fill_part(out):
            data = out.create_dataset('x', SHAPE, 'i4', fillvalue=fill, **options)
            data[:10] = wanted[:10]
        return filled(fill_part)

    for fill in (0, 7):
        wanted = np.full(SHAPE, fill, 'i4')
        wanted[:10] = made('i4', SHAPE)[:10]
        refused = dict(stream='E234', way='command')
        matrix.one(f'fill_{fill}_chunks', wanted, partly(fill, wanted, chunks=(5, 6, 5)), **refused)
        matrix.one(f'fill_{fill}_cut', wanted, partly(fill, wanted, chunks=(5, 3, 2), compression='gzip'), **refused)
        matrix.one(f'fill_{fill}_contiguous', wanted, partly(fill, wanted))

    never = filled(lambda out: out.create_dataset('x', SHAPE, 'i4', fillvalue=5))
    matrix.one('fill_never_contiguous', np.full(SHAPE, 5, 'i4'), never, stream='E234', way='command')


def changed(matrix):
    values = made('i4', SHAPE)

    def resized(rows, **options):
        def resize(out):
            data = out.create_dataset('x', data=values, maxshape=(None, None, None), chunks=(8, 4, 2), **options)
            data.resize(rows)
        return filled(resize)
    matrix.one('resized_shorter', values[:33], resized((33, 6, 5)))
    matrix.one('resized_narrower', values[:, :5, :3], resized((ROWS, 5, 3), compression='gzip'))

    def append(out):
        data = out.create_dataset('x', (0, 6, 5), 'i4', maxshape=(None, 6, 5), chunks=(8, 6, 5))
        for row in range(ROWS):
            data.resize(row + 1, 0)
            data[row] = values[row]
    matrix.one('resized_by_appending', values, filled(append))


def files(matrix):
    values = made('f8', (ROWS, 3))

    def with_block(size):
        def write(folder):
            with h5py.File(folder + 'a.h5', 'w', userblock_size=size) as out:
                out.create_dataset('x', data=values, chunks=(9, 3))
            with open(folder + 'a.h5', 'r+b') as out:
                out.write(b'MATLAB 7.3 MAT-file')
        return write

    def ordered(out):
        for name in 'zyx':
            out.create_dataset(name, data=values, track_order=True, track_times=True)

    def described(out):
        data = out.create_dataset('x', data=values, compression='gzip')
        data.attrs.update({f'note {i}': 'n' * 500 for i in range(50)})
        data.dims[0].label = 'time'
        out['time'] = np.arange(ROWS)
        out['time'].make_scale()
        data.dims[0].attach_scale(out['time'])

    def paged(out):
        out.create_dataset('x', data=values, chunks=(9, 3))

    def crowded(out):
        for number in range(300):
            out[f'group-{number % 7}/data-{number}'] = number
        out['x'] = values

    for size in (512, 4096):
        matrix.one(f'file_user_block_{size}', values, with_block(size))
    pages = dict(fs_strategy='page', fs_page_size=4096, libver='latest')
    for fill, options in ((ordered, dict(track_order=True)), (described, {}), (paged, pages), (crowded, {})):
        matrix.one('file_' + fill.__name__, values, filled(fill, **options))


def add(matrix):
    for axis in (layouts, elsewhere, filters, large_chunks, chunks_of_others, versions, names, unwritten, changed, files):
        axis(matrix)
