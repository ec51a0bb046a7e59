# SPDX-License-Identifier: Apache-2.0
"""Files of others beside what is to be read from them: one folder and one line for each case."""
import os

import numpy as np

# What numbers are read as.
KEPT = {'b1': 'u1', 'u1': 'u1', 'i1': 'i4', 'i2': 'i4', 'u2': 'i4', 'i4': 'i4', 'u4': 'i8', 'i8': 'i8',
        'u8': 'i8', 'f2': 'f4', 'f4': 'f4', 'f8': 'f8'}
NAMES = {'u1': 'u8', 'i4': 'i32', 'i8': 'i64', 'f4': 'f32', 'f8': 'f64'}


def kept(values):
    """As a stream gives `values`."""
    return np.ascontiguousarray(values).astype('<' + KEPT[values.dtype.kind + str(values.dtype.itemsize)])


class Field:
    """One field: `text` is NAME=PATH[:LAYOUT], `values` are numpy's; `packed` where packing gives others."""

    def __init__(self, text, values, packed=None, as_type=None):
        self.text, self.name = text, text.split('=')[0]
        self.values = kept(values) if as_type is None else values.astype('<' + as_type)
        self.packed = packed
        if packed is None and self.name == 'labels':
            self.packed = self.values.astype('<i8').reshape(len(values))


class Matrix:
    """Collects cases: `folder()` first, for the files, then `add()`."""

    def __init__(self, root):
        self.root, self.name = root, ''

    def folder(self, name):
        self.name = name
        os.mkdir(f'{self.root}/{name}')
        return f'{self.root}/{name}/'

    def add(self, fields, stream='=', pack='=', way='-', after='-', files=('a.h5',)):
        """`stream`, `pack`: '=' or the code of the refusal. `way`: what its advice is: 'command', 'fields' (other
        data sets of the file), 'shown' (a command that this machine cannot run), '-' (there is none). `after`: the
        fields of what the command writes, if others."""
        for field in fields:
            place = f'{self.root}/{self.name}/{field.name}'
            field.values.tofile(place + '.bin')
            if field.packed is not None:
                field.packed.tofile(place + '.packed')
        kinds = ','.join(NAMES[field.values.dtype.str[1:]] for field in fields)
        texts = ','.join(field.text for field in fields)
        print(self.name, ','.join(files), texts, kinds, stream, pack, way, after, sep='\t')

    def one(self, name, values, write, path='/x', field=None, as_type=None, **how):
        """A file that `write(folder)` makes, with `values` at `path`, or as `field` says."""
        write(self.folder(name))
        self.add([Field(field or 'values=' + path + ':value', values, as_type=as_type)], **how)
