# The types that C has for the numbers of record_kernel.py.  Every index stays checked.
cimport cython
from cpython.bytearray cimport PyByteArray_Resize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        pass
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)
    void PyObject_GC_UnTrack(void *)

cdef tuple _NO_HEADERS
cdef long long _FAR, _INT32


# record_pieces.py.  Bytes are taken as they are from memory whose bounds are looked at first.

cdef inline unsigned int hash_bytes(const unsigned char[:] data, Py_ssize_t at, Py_ssize_t end) except? 1:
    cdef unsigned int m = 0x5BD1E995
    cdef unsigned int k, h = 0x9747B28C ^ <unsigned int> (end - at)
    cdef const unsigned char *p
    if at < 0 or at > end or end > data.shape[0]:
        raise IndexError
    if at < end:
        p = &data[0]
        while at + 4 <= end:
            k = p[at] | <unsigned int> p[at + 1] << 8 | <unsigned int> p[at + 2] << 16 | <unsigned int> p[at + 3] << 24
            k *= m
            h = (h * m) ^ ((k ^ (k >> 24)) * m)
            at += 4
        if at < end:
            k = 0
            while end > at:
                end -= 1
                k = k << 8 | p[end]
            h = (h ^ k) * m
    h = (h ^ (h >> 13)) * m
    return h ^ (h >> 15)


cdef inline int grow(bytearray out, Py_ssize_t size) except -1:
    return PyByteArray_Resize(out, len(out) + size)


cdef inline Py_ssize_t number_size(unsigned long long n) noexcept:
    cdef Py_ssize_t size = 1
    while n > 127:
        n >>= 7
        size += 1
    return size


cdef inline int put_number(bytearray out, long long n) except -1:
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return 0


cdef inline Py_ssize_t _size_at(const int[:] ends, Py_ssize_t n, bint is_null) except? -2:
    return -1 if is_null else ends[n + 1] - ends[n]


cdef inline Py_ssize_t record_size(
    unsigned long long delta, Py_ssize_t place, Py_ssize_t key_size, Py_ssize_t value_size
) noexcept:
    cdef Py_ssize_t size = 2 + number_size(delta) + number_size(place << 1)
    size += number_size(key_size << 1) + key_size if key_size >= 0 else 1
    return size + (number_size(value_size << 1) + value_size if value_size >= 0 else 1)


cdef inline unsigned char *_number(unsigned char *to, unsigned long long n) noexcept:
    while n > 127:
        to[0] = <unsigned char> (n & 127 | 128)
        to += 1
        n >>= 7
    to[0] = <unsigned char> n
    return to + 1


cdef inline unsigned char *_bytes(
    unsigned char *to, const unsigned char[:] data, Py_ssize_t at, Py_ssize_t size
) except NULL:
    if size < 0:
        return _number(to, 1)
    to = _number(to, size << 1)
    if size > 0:
        memcpy(to, &data[at], size)
    return to + size


cdef inline Py_ssize_t row_size(
    unsigned long long delta, Py_ssize_t place, const int[:] key_ends, const int[:] value_ends, Py_ssize_t n, int null
) except? -2:
    return record_size(delta, place, _size_at(key_ends, n, null & 1), _size_at(value_ends, n, null & 2))


cdef inline Py_ssize_t put_row(
    unsigned char[:] out, Py_ssize_t at, unsigned long long delta, Py_ssize_t place, const unsigned char[:] keys,
    const int[:] key_ends, const unsigned char[:] values, const int[:] value_ends, Py_ssize_t n, int null,
) except? -2:
    cdef Py_ssize_t key_size = _size_at(key_ends, n, null & 1), value_size = _size_at(value_ends, n, null & 2)
    cdef Py_ssize_t key = key_ends[n], value = value_ends[n]
    cdef Py_ssize_t whole = record_size(delta, place, key_size, value_size)
    cdef Py_ssize_t end = at + number_size(whole << 1) + whole
    cdef unsigned char *to
    if at < 0 or end > out.shape[0]:
        raise IndexError
    if key_size > 0 and (key < 0 or key > keys.shape[0] - key_size):
        raise IndexError
    if value_size > 0 and (value < 0 or value > values.shape[0] - value_size):
        raise IndexError
    to = _number(&out[at], whole << 1)
    to[0] = 0
    to = _number(_number(to + 1, delta), place << 1)
    to = _bytes(_bytes(to, keys, key, key_size), values, value, value_size)
    to[0] = 0
    return end


# record_tuples.py.  `kind` is a tuple class without attributes of its own, and a record is seen by nobody before it has
# all its items.  One without headers leaves the cycle collector: it refers to numbers, bytes and text.

cdef inline void _put_into(object record, Py_ssize_t place, object item) noexcept:
    Py_INCREF(item)  # the next line takes one over
    PyTuple_SET_ITEM(record, place, item)


cdef inline object tuple_of_five(
    object kind, object offset, object timestamp, object key, object value, object headers
):
    record = PyType_GenericAlloc(<PyTypeObject *> kind, 5)
    _put_into(record, 0, offset)
    _put_into(record, 1, timestamp)
    _put_into(record, 2, key)
    _put_into(record, 3, value)
    _put_into(record, 4, headers)
    if headers is _NO_HEADERS:
        PyObject_GC_UnTrack(<void *> record)
    return record


cdef inline object tuple_of_seven(
    object kind, object topic, object partition, object offset, object timestamp, object key, object value,
    object headers,
):
    record = PyType_GenericAlloc(<PyTypeObject *> kind, 7)
    _put_into(record, 0, topic)
    _put_into(record, 1, partition)
    _put_into(record, 2, offset)
    _put_into(record, 3, timestamp)
    _put_into(record, 4, key)
    _put_into(record, 5, value)
    _put_into(record, 6, headers)
    if headers is _NO_HEADERS:
        PyObject_GC_UnTrack(<void *> record)
    return record


@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, n=longlong, timestamp=longlong, offset=longlong,
    stamped=longlong, key=object, value=object, found=list, view="const unsigned char[:]",
    chars="const unsigned char *",
)
cpdef list decode_records(
    bytes body, Py_ssize_t count, long long base_offset, long long base_timestamp, object append_time,
    object kind, object topic, object partition, long long first,
)

@cython.locals(n=longlong, end=Py_ssize_t, count=Py_ssize_t)
cdef Py_ssize_t _decode_headers(
    bytes body, const unsigned char[:] view, Py_ssize_t at, Py_ssize_t stop, list found
) except? -2

cpdef Py_ssize_t append_record(
    bytearray out, Py_ssize_t place, object timestamp_delta, object key, object value, Py_ssize_t room
) except? -2

@cython.locals(before=Py_ssize_t, taken=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t append_records(
    bytearray out, Py_ssize_t place, object timestamp_delta, list keys, list values, Py_ssize_t room
) except? -2

@cython.locals(
    key_size=Py_ssize_t, value_size=Py_ssize_t, delta=longlong, size=Py_ssize_t, whole=Py_ssize_t,
)
cdef Py_ssize_t _append(
    bytearray out, long long place, long long timestamp_delta, object key, object value, Py_ssize_t room
) except? -2

@cython.locals(
    end=Py_ssize_t, stop=Py_ssize_t, place=Py_ssize_t, n=longlong, earliest=longlong, latest=longlong, keyless=bint,
)
cpdef object check_records(const unsigned char[:] body, Py_ssize_t at, Py_ssize_t first, Py_ssize_t until)

@cython.locals(n=longlong)
cpdef Py_ssize_t pass_over(const unsigned char[:] body, Py_ssize_t at, Py_ssize_t first, Py_ssize_t until) except? -2

@cython.locals(shift=int, byte=longlong)
cdef (long long, Py_ssize_t) _longer(const unsigned char[:] body, Py_ssize_t at, long long n, int most)

@cython.locals(
    end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, n=longlong, timestamp=longlong, offset=longlong,
    stamped=longlong, key_begin=Py_ssize_t, key_end=Py_ssize_t, value_begin=Py_ssize_t, null=int,
)
cpdef Py_ssize_t index_records(
    const unsigned char[:] body, Py_ssize_t shift, Py_ssize_t count, long long base_offset, long long base_timestamp, object append_time,
    long long low, long long high, int[:] places, unsigned char[:] nulls, long long[:] offsets, long long[:] timestamps,
    Py_ssize_t row,
) except? -2

cpdef unsigned int murmur2(const unsigned char[:] data) except? 1

@cython.locals(count=Py_ssize_t, n=Py_ssize_t)
cpdef Py_ssize_t hash_rows(const unsigned char[:] data, const int[:] ends, unsigned int[:] hashes) except? -2

@cython.locals(
    first=Py_ssize_t, at=Py_ssize_t, size=Py_ssize_t, n=Py_ssize_t, there=Py_ssize_t, view="unsigned char[:]",
)
cpdef Py_ssize_t append_rows(
    bytearray out, Py_ssize_t place, long long delta, const long long[:] rows, Py_ssize_t row, Py_ssize_t stop,
    const unsigned char[:] keys, const int[:] key_ends, const unsigned char[:] values, const int[:] value_ends,
    const unsigned char[:] nulls, Py_ssize_t room,
) except? -2
