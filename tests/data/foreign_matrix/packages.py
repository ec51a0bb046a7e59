# SPDX-License-Identifier: Apache-2.0
"""What PyTables and netCDF4 write."""
import netCDF4
import numpy as np
import tables
from numbers_of import made, ROWS

SHAPE = (ROWS, 4, 6)


def of_netcdf(kind='f4', form='NETCDF4', rows=ROWS, **options):
    def write(folder):
        with netCDF4.Dataset(folder + 'a.h5', 'w', format=form) as out:
            for name, size in zip(('time', 'lat', 'lon'), (rows, *SHAPE[1:])):
                out.createDimension(name, size)
            out.createVariable('time', 'f8', ('time',))[:] = np.arange(ROWS)
            data = out.createVariable('x', kind, ('time', 'lat', 'lon'), **options)
            data.units = 'K'
            data.set_auto_maskandscale(False)
            data[:] = made(kind, SHAPE)
    return write


def netcdf(matrix):
    for name, kind, how in (('plain', 'f4', {}), ('zlib', 'f4', dict(zlib=True)), ('unlimited', 'f8', dict(rows=None)),
                            ('unlimited_zlib', 'i2', dict(rows=None, zlib=True, complevel=9)),
                            ('unshuffled', 'u1', dict(zlib=True, shuffle=False, fletcher32=True)),
                            ('chunks', 'i4', dict(chunksizes=(7, 2, 3))), ('big', 'f4', dict(endian='big')),
                            ('classic', 'f4', dict(form='NETCDF4_CLASSIC', zlib=True)),
                            ('fill_value', 'f4', dict(fill_value=-1.0, zlib=True))):
        matrix.one('netcdf_' + name, made(kind, SHAPE), of_netcdf(kind, **how))
    matrix.one('netcdf_of_1989', made('f4', SHAPE), of_netcdf(form='NETCDF3_CLASSIC'), stream='E203', pack='E203',
               way='command')

    # The numbers that are stored, not those that they stand for.
    def scaled(folder):
        with netCDF4.Dataset(folder + 'a.h5', 'w') as out:
            out.createDimension('time', ROWS)
            data = out.createVariable('x', 'i2', ('time',), zlib=True, fill_value=-999)
            data.scale_factor, data.add_offset = 0.5, 10.0
            data[:] = np.ma.masked_equal(np.arange(ROWS) * 0.5 + 10, 12.0)
    stored = np.arange(ROWS, dtype='i2')
    stored[4] = -999
    matrix.one('netcdf_scaled', stored, scaled)

    def grouped(folder):
        with netCDF4.Dataset(folder + 'a.h5', 'w') as out:
            group = out.createGroup('model/run')
            group.createDimension('n', ROWS)
            group.createVariable('x', 'f8', ('n',))[:] = np.arange(ROWS)
    matrix.one('netcdf_group', np.arange(ROWS, dtype='f8'), grouped, path='/model/run/x')


def of_tables(add):
    def write(folder):
        with tables.open_file(folder + 'a.h5', 'w') as out:
            add(out)
    return write


def pytables(matrix):
    values = made('i4', SHAPE)
    matrix.one('tables_array', values, of_tables(lambda out: out.create_array('/', 'x', values)))
    truth = values > 0
    matrix.one('tables_bool', truth, of_tables(lambda out: out.create_carray('/', 'x', obj=truth)))
    codecs = ('zlib', 'blosc', 'blosc:lz4', 'blosc:lz4hc', 'blosc:zlib', 'blosc:zstd', 'blosc:snappy')
    for codec in codecs:
        for shuffle, name in ((dict(shuffle=True), ''), (dict(shuffle=False), '_plain')):
            how = tables.Filters(5, codec, **shuffle)
            matrix.one(f'tables_{codec.replace(":", "_")}{name}', values,
                       of_tables(lambda out: out.create_carray('/', 'x', obj=values, filters=how)))
    bits = tables.Filters(5, 'blosc:lz4', shuffle=False, bitshuffle=True)
    matrix.one('tables_blosc_bits', values,
               of_tables(lambda out: out.create_carray('/', 'x', obj=values, filters=bits)))
    for codec, refused in dict(lzo=dict(stream='E212', pack='E213', way='command'),
                               bzip2=dict(stream='E212', way='command')).items():
        how = tables.Filters(5, codec)
        matrix.one('tables_' + codec, values,
                   of_tables(lambda out: out.create_carray('/', 'x', obj=values, filters=how)), **refused)

    def appended(out):
        data = out.create_earray('/', 'x', obj=values[:7], filters=tables.Filters(1, 'blosc'), expectedrows=ROWS)
        data.append(values[7:])
    matrix.one('tables_appended', values, of_tables(appended))

    def ragged(out):
        data = out.create_vlarray('/', 'x', tables.Int32Atom())
        for row in range(ROWS):
            data.append(list(range(row % 4)))
    matrix.one('tables_ragged', np.zeros(0, 'u1'), of_tables(ragged), stream='E234', pack='E214')


def table(matrix):
    kind = np.dtype([('energy', 'f8'), ('hits', 'i4', (5,))])
    rows = np.zeros(ROWS, kind)
    rows['energy'], rows['hits'] = made('f8', ROWS), made('i4', (ROWS, 5))
    matrix.one('tables_table', rows['hits'],
               of_tables(lambda out: out.create_table('/', 'x', obj=rows, filters=tables.Filters(5, 'zlib'))),
               stream='E234', pack='E214', way='command', after='values=/x/hits')


def add(matrix):
    for axis in (netcdf, pytables, table):
        axis(matrix)
