# SPDX-License-Identifier: Apache-2.0
"""Numbers that stand for others by the CF conventions: what netCDF4 makes of them, and numpy in double precision."""
import h5py
import netCDF4
import numpy as np
from matrix import Field
from numbers_of import made, ROWS

SHAPE = (ROWS, 4, 6)


def stands_for(stored, scale=None, offset=None):
    """CF 8.1, in double precision, rounded once."""
    values = stored.astype('f8')
    if scale is not None:
        values = values * np.float64(scale)
    if offset is not None:
        values = values + np.float64(offset)
    return values.astype('f4')


def one(matrix, name, stored, expected, attributes, word='cf', more={}, **how):
    """A data set of netCDF4 with `attributes`; netCDF4's own values are compared with `expected` first."""
    folder = matrix.folder('cf_' + name)
    fill = attributes.pop('_FillValue', None)
    with netCDF4.Dataset(folder + 'a.h5', 'w') as out:
        for axis, size in zip('tyx', stored.shape):
            out.createDimension(axis, size)
        data = out.createVariable('v', stored.dtype, tuple('tyx'[:stored.ndim]), fill_value=fill, **more)
        data.setncatts(attributes)
        data.set_auto_maskandscale(False)
        data[:] = stored
    with netCDF4.Dataset(folder + 'a.h5') as file:
        theirs = file['v'][:]
    instead = float(word[3:]) if '=' in word else np.nan
    assert np.allclose(np.ma.filled(theirs.astype('f8'), instead), expected, rtol=1e-6, atol=1e-5, equal_nan=True), name
    double = all(not isinstance(value, np.float32) for value in attributes.values())
    if double and theirs.dtype == 'f8':
        assert np.array_equal(np.ma.filled(theirs, instead).astype('f4'), expected, equal_nan=True), name
    matrix.add([Field('values=/v:value:' + word, expected)], **how)


def scaled(matrix):
    for kind in ('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8', 'u8', 'f4', 'f8', '>i2', '>f8'):
        stored = made(kind, SHAPE)
        attributes = dict(scale_factor=0.01, add_offset=273.15)
        one(matrix, 'of_' + kind.replace('>', 'big_'), stored, stands_for(stored, 0.01, 273.15), attributes)
    stored = made('i2', SHAPE)
    one(matrix, 'scale', stored, stands_for(stored, 0.5), dict(scale_factor=0.5))
    one(matrix, 'offset', stored, stands_for(stored, None, -7.25), dict(add_offset=-7.25))
    one(matrix, 'of_f32', stored, stands_for(stored, np.float32(0.1), np.float32(3)),
        dict(scale_factor=np.float32(0.1), add_offset=np.float32(3)))
    one(matrix, 'zlib', stored, stands_for(stored, 2.0), dict(scale_factor=2.0), more=dict(zlib=True, shuffle=True))
    # Padding of chunks is the fill value, and no sample's.
    one(matrix, 'padding', stored, stands_for(stored, 2.0), dict(scale_factor=2.0, _FillValue=np.int16(-32768)),
        more=dict(zlib=True, chunksizes=(7, 3, 5)))


def missing(matrix):
    stored = made('i2', SHAPE)
    holes = stored.copy()
    holes[3, 1, 2] = holes[-1, -1, -1] = -32000
    values = stands_for(stored, 0.25, 1.0)
    for word, instead in (('cf=nan', np.nan), ('cf=-1.5', -1.5)):
        expected = values.copy()
        expected[3, 1, 2] = expected[-1, -1, -1] = instead
        how = dict(word=word)
        packing = dict(scale_factor=0.25, add_offset=1.0)
        name = '_nan' if word == 'cf=nan' else ''
        one(matrix, 'fill_value' + name, holes, expected, packing | dict(_FillValue=np.int16(-32000)), **how)
        one(matrix, 'missing_value' + name, holes, expected, packing | dict(missing_value=np.int16(-32000)), **how)
        one(matrix, 'valid_min' + name, holes, expected, packing | dict(valid_min=np.int16(-31999)), **how)
    narrow = np.where((stored < -50) | (stored > 50), 9.0, stands_for(stored)).astype('f4')
    one(matrix, 'valid_range', stored, narrow, dict(valid_range=np.array([-50, 50], 'i2')), word='cf=9')
    reals = made('f4', SHAPE)
    gaps, expected = reals.copy(), reals.copy()
    gaps[5, 0], expected[5, 0] = np.float32(1e20), 0
    one(matrix, 'of_reals', gaps, expected, dict(_FillValue=np.float32(1e20)), word='cf=0')
    gaps[5, 0], expected[5, 0] = np.nan, 0
    one(matrix, 'of_nan', gaps, expected, dict(_FillValue=np.float32(np.nan)), word='cf=0')
    signed = (made('u1', SHAPE) * 2 + 57).astype('u1').view('i1')
    expected = signed.view('u1').astype('f4') * 2
    expected[signed == -1] = 7
    one(matrix, 'unsigned', signed, expected, dict(scale_factor=2.0, _Unsigned='true', _FillValue=np.int8(-1)),
        word='cf=7')


def by_the_library(matrix):
    """What libhdf5 reads when it is packed: the same numbers."""
    stored = np.abs(made('i2', SHAPE) // 2)
    for word, instead in (('cf', None), ('cf=5', 5)):
        expected = stands_for(stored, 0.25, 1.0)
        folder = matrix.folder('cf_filter' + ('' if instead is None else '_missing'))
        with h5py.File(folder + 'a.h5', 'w') as out:
            data = out.create_dataset('v', data=stored, chunks=(9, 4, 6), scaleoffset=0)
            data.attrs.update(scale_factor=0.25, add_offset=1.0)
            if instead is not None:
                data.attrs['_FillValue'] = stored[4, 2, 2]
                expected[stored == stored[4, 2, 2]] = instead
        matrix.add([Field('values=/v:value:' + word, expected)], stream='E212', way='command')


def refused(matrix):
    stored = made('i2', SHAPE)
    for name, attributes in dict(
            nothing=dict(units='K'), text=dict(scale_factor='2'), two=dict(scale_factor=[1.0, 2.0]),
            other_kind=dict(scale_factor=0.5, missing_value=-1e20), range_of_values=dict(valid_range=[0.0, 1.0])).items():
        def write(folder):
            with h5py.File(folder + 'a.h5', 'w') as out:
                out.create_dataset('v', data=stored).attrs.update(attributes)
        matrix.one('cf_no_' + name, stored, write, field='values=/v:value:cf', stream='E235', pack='E235',
                   way='fields')


def add(matrix):
    for axis in (scaled, missing, by_the_library, refused):
        axis(matrix)
